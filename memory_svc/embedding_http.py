"""Requests to the embedding server: the body of one goes out, a status and a body come back."""

from collections.abc import Awaitable, Callable, Mapping

import aiohttp

Send = Callable[[bytes, Mapping[str, str]], Awaitable[tuple[int, bytes]]]
# Ten times what the longest batch makes of a wide model.
ANSWER_BYTES_MAX = 64 * 1024 * 1024
# Less than a server's own patience with an idle connection (uvicorn's is 5 s), so that it is this side that lets go.
IDLE_SECONDS_MAX = 4.0


class Connections:
    """Connections to the embedding server, kept for the next request. They are opened by the first."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        # Whatever lies between may pack the answer where it is not told that nobody unpacks it.
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._kept: aiohttp.ClientSession | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The status and the body of the answer; one of more than ANSWER_BYTES_MAX is not read on and comes empty.

        headers: further ones. It has no end in time. Raises ConnectionError where there is no answer.
        """
        if self._kept is None:
            # Names are looked up for each connection, so that a server that moved is found at once.
            kept = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS_MAX, use_dns_cache=False)
            self._kept = self._session(kept)
        try:
            return await self._asked_again_where_dropped(self._kept, body, headers)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ConnectionError(type(error).__name__) from error

    async def close(self) -> None:
        """Let go of the connections."""
        if self._kept:
            await self._kept.close()

    async def _asked_again_where_dropped(
        self, kept: aiohttp.ClientSession, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        try:
            return await self._asked(kept, body, headers)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # That a kept connection was closed at the other end may show only when it is used. Others may be as old.
            async with self._session(aiohttp.TCPConnector(force_close=True)) as fresh:
                return await self._asked(fresh, body, headers)

    async def _asked(
        self, session: aiohttp.ClientSession, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        parts = []
        size = 0
        async with session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
            while part := await answer.content.readany():
                size += len(part)
                if size > ANSWER_BYTES_MAX:
                    return answer.status, b""
                parts.append(part)
            return answer.status, b"".join(parts)

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )
