"""The embedding server: texts in over HTTP, unit vectors out, one recorded model behind them."""
