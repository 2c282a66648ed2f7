"""The memory server: hybrid recall over MCP and HTTP."""
