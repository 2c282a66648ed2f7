"""How well recall finds, beside `cpersona` on the same vectors. No service imports it; it holds no text of others."""
