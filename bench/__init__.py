"""Comparisons with other servers, run by hand; no service imports them and no test waits for them."""
