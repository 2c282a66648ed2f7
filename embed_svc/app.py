"""Where the parts meet: settings to a model loaded in the background, a queue and a server; start and stop.

The only place that imports the heavy libraries, and only when a model is loaded.
"""

import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TextIO

import uvicorn
from litestar import Litestar

from embed_svc import api, choice, guard, machine, observe, self_test
from embed_svc.batching import Limits
from embed_svc.direct import Direct
from embed_svc.errors import Internal, Problem
from embed_svc.heads import BoundedHeads
from embed_svc.models import Model
from embed_svc.observe import Observer
from embed_svc.service import Embedder, Readiness
from embed_svc.settings import Settings, quieten_libraries
from embed_svc.spans import Tracer
from embed_svc.wire import Observed

Say = Callable[[str], None]
Obtain = Callable[[Say], Model]
STOPPING = "the server is stopping"

_RETRY_SECONDS = (5.0, 15.0, 60.0, 300.0)
_STOP_SECONDS_MAX = 5.0


class Loader:
    """Brings the model up in a thread of its own, tries again what may pass, and takes it down."""

    def __init__(self, settings: Settings, readiness: Readiness, observer: Observer, obtain: Obtain) -> None:
        self._limits = Limits(
            tokens_max=settings.batch_tokens_max,
            queue_texts_max=settings.queue_texts_max,
            queue_tokens_max=settings.queue_tokens_max,
        )
        self._settings = settings
        self._readiness = readiness
        self._observer = observer
        self._obtain = obtain
        self._stopping = threading.Event()
        self._embedder: Embedder | None = None
        self._thread = threading.Thread(target=self._run, name="embed-loader", daemon=True)

    @asynccontextmanager
    async def running(self, _: Litestar) -> AsyncIterator[None]:
        """Load, and serve when loaded, while the block lasts; entering it returns at once."""
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop loading or serving. A download that does not listen is left to die with the process."""
        self._stopping.set()
        self._readiness.stop(STOPPING)
        self._thread.join(_STOP_SECONDS_MAX)
        if self._embedder is not None:
            self._embedder.close()

    def _run(self) -> None:
        for attempt in range(1, 1 << 30):
            failure = self._attempt()
            if self._stopping.is_set():
                return
            if failure is None:
                self._stay_tested()
                return
            self._readiness.close(failure.text)
            wait = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS)) - 1] if failure.retry else None
            observe.say("error", "model not ready", reason=failure.text, retry_seconds=wait)
            if wait is None or self._stopping.wait(wait):
                return

    def _attempt(self) -> Problem | None:
        """Bring the model up once; return why it did not come."""
        try:
            model = self._obtain(self._readiness.close)
            self._model = model
            if self._stopping.is_set():
                return None
            self._observer.tested()
            self._embedder = Embedder(model, self._limits, self._observer, self._settings.cache_bytes_max)
            self._readiness.open(self._embedder)
        except Problem as problem:
            return problem
        except Exception as error:  # noqa: BLE001 - whatever it is, it must end up in /readyz
            observe.failed("loading failed", error, message=str(error))
            return Internal(f"the model could not be loaded ({type(error).__name__}); the log has the details")
        observe.say("info", "ready", model=model.info.name, fingerprint=model.info.fingerprint)
        return None

    def _stay_tested(self) -> None:
        """Repeat the self-test while serving; a model that fails it serves no more, one that passes again does."""
        seconds = self._settings.self_test_seconds
        while seconds and not self._stopping.wait(seconds) and self._embedder is not None:
            try:
                self_test.self_test(self._model)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must end up in /readyz
                reason = error.text if isinstance(error, Problem) else f"the self-test failed ({type(error).__name__})"
                observe.failed("self-test failed", error)
                self._readiness.close(reason)
                continue
            self._observer.tested()
            if not self._stopping.is_set():
                self._readiness.open(self._embedder)


def build(settings: Settings, obtain: Obtain | None = None, tracer: Tracer | None = None) -> Observed:
    """Return the whole server as an ASGI application; its model loads when it starts.

    `obtain` brings a running, tested model, and tells each step; left out, it is the one the settings ask for.
    `tracer` is told of each request.
    Raises Invalid where the token cannot be read.
    """
    observer = Observer(machine.resident_bytes)
    readiness = Readiness(observer)
    read = guard.read_token(settings.token_file)
    token = guard.Token(read) if read else None
    loader = Loader(settings, readiness, observer, obtain or (lambda say: _obtain(settings, say, readiness)))
    app = api.create(
        settings,
        readiness,
        observer,
        lifespan=[loader.running],
        guards=[guard.guard(token, api.OPEN_ROUTES)] if token else [],
    )
    served = Direct(app, readiness, settings.body_bytes_max, token)
    return Observed(served, observer, settings.bodies_bytes_max, lambda: readiness.stop(STOPPING), tracer)


class DrainingServer(uvicorn.Server):
    """A server that, told to stop, still listens while requests are at work: they end, new ones are refused."""

    def __init__(self, config: uvicorn.Config, app: Observed, seconds_max: int) -> None:
        super().__init__(config)
        self._app = app
        self._seconds_max = seconds_max
        self._told_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; told a second time, stop as it is."""
        if self._told_at is None:
            self._told_at = time.monotonic()
            self._app.refuse()
            self._captured_signals.append(sig)
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Say whether to stop now; asked ten times a second."""
        should_exit = await super().on_tick(counter)
        if self._told_at is None:
            return should_exit
        left = self._seconds_max - (time.monotonic() - self._told_at)
        self.config.timeout_graceful_shutdown = max(int(left), 1)
        return should_exit or self._app.at_work == 0 or left <= 0


def serve(settings: Settings, traced: bool = False) -> None:
    """Serve until told to stop, and with `traced` tell a collector of each request.

    Raises Invalid, before it listens, where the recorded model forbids the start.
    """
    record_file = Path(settings.data_dir, choice.RECORD_NAME)
    choice.decide(settings.model, settings.model_replaces, choice.read(record_file), record_file)
    with _collected() if traced else nullcontext() as tracer:
        app = build(settings, tracer=tracer)
        DrainingServer(uvicorn_config(app, settings), app, settings.stop_seconds_max).run()


@contextmanager
def _collected() -> Iterator[Tracer]:
    # A tenth of a second of imports, and 10 MB.
    from embed_svc.tracing import Tracing

    tracing = Tracing()
    try:
        yield tracing
    finally:
        tracing.close()


def uvicorn_config(app: Observed, settings: Settings) -> uvicorn.Config:
    """Return how the server listens; the access log is off since every request is logged already."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        http=BoundedHeads,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.stop_seconds_max,
    )


def listing(settings: Settings) -> str:
    """Return the table of the command `models`."""
    quieten_libraries()
    from embed_svc import shelf

    return shelf.listing(settings)


def download(settings: Settings, name: str, out: TextIO) -> None:
    """Fetch a model's files, as the command `download` does. Raises Unavailable and Invalid as that."""
    quieten_libraries()
    from embed_svc import shelf

    shelf.download(settings, name, out)


def compare(settings: Settings, one: str, other: str, file: Path) -> str:
    """Return what the command `compare` prints. Raises Unavailable and Invalid as loading a model does."""
    quieten_libraries()
    from embed_svc import compare

    return compare.written(compare.compare(settings, one, other, file), one, other)


def bench(settings: Settings, seconds: float, as_json: bool) -> str:
    """Return how fast the chosen model runs here, as a table or as JSON. Raises as `embed_svc.bench.run` does."""
    quieten_libraries()
    # As heavy as the model.
    from embed_svc import bench

    report = bench.run(settings, seconds)
    return bench.as_json(report) if as_json else report.table()


def _obtain(settings: Settings, say: Say, readiness: Readiness) -> Model:
    quieten_libraries()
    # Two seconds of imports, while the server listens.
    from embed_svc.loading import obtain_model

    model = obtain_model(settings, say, readiness.declare)
    # The libraries leave half a million objects that stay: to look through them again and again took 0.07 s each time.
    gc.collect()
    gc.freeze()
    return model
