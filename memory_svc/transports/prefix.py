"""The path under which a proxy publishes this server, whether the proxy takes it off a request or leaves it on."""

from memory_svc.transports.guard import App, Receive, Scope, Send


def beneath(prefix: str, app: App) -> App:
    """`app`, which answers beneath the prefix as it does without one; "" = there is none."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{prefix}/"):
            raw_path = scope.get("raw_path") or b""
            scope = {
                **scope,
                "path": scope["path"].removeprefix(prefix),
                "raw_path": raw_path.removeprefix(prefix.encode()),
            }
        await app(scope, receive, send)

    return answer if prefix else app
