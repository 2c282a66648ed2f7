"""The embedding server beside `cembedding`: what a text costs, in one run; no service imports it."""
