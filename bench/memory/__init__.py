"""The memory server beside `cpersona`: what a recall and a store cost, in one run; no service imports it."""
