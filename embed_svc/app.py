"""Where the parts meet: settings to a model loaded in the background, a queue and a server; start and stop.

The only place that imports the heavy libraries, and only when a model is loaded.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn
from litestar.types import ASGIApp

from embed_svc import api, choice, machine, observe
from embed_svc.batching import Limits
from embed_svc.errors import Internal, Problem, Unavailable
from embed_svc.models import Model
from embed_svc.observe import Observer
from embed_svc.service import Embedder, Readiness
from embed_svc.settings import Settings, quieten_libraries
from embed_svc.wire import Observed

Say = Callable[[str], None]
Obtain = Callable[[Say], Model]

_RETRY_SECONDS = (5.0, 15.0, 60.0, 300.0)
_STOP_SECONDS_MAX = 5.0


class Loader:
    """Brings the model up in a thread of its own, tries again what may pass, and takes it down."""

    def __init__(self, settings: Settings, readiness: Readiness, observer: Observer, obtain: Obtain) -> None:
        self._limits = Limits(tokens_max=settings.batch_tokens_max, queue_texts_max=settings.queue_texts_max)
        self._readiness = readiness
        self._observer = observer
        self._obtain = obtain
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="embed-loader", daemon=True)

    def start(self) -> None:
        """Begin loading; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop loading or serving. A download that does not listen is left to die with the process."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS_MAX)
        try:
            embedder = self._readiness.embedder
        except Unavailable:
            return
        self._readiness.close("the server is stopping")
        embedder.close()

    def _run(self) -> None:
        for attempt in range(1, 1 << 30):
            failure = self._attempt()
            if failure is None or self._stopping.is_set():
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
            if self._stopping.is_set():
                return None
            self._readiness.open(Embedder(model, self._limits, self._observer))
        except Problem as problem:
            return problem
        except Exception as error:  # noqa: BLE001 - whatever it is, it must end up in /readyz
            observe.failed("loading failed", error, message=str(error))
            return Internal(f"the model could not be loaded ({type(error).__name__}); the log has the details")
        observe.say("info", "ready", model=model.info.name, fingerprint=model.info.fingerprint)
        return None


def build(settings: Settings, obtain: Obtain | None = None) -> ASGIApp:
    """Return the whole server as an ASGI application; its model loads when it starts.

    `obtain` brings a running, tested model, and tells each step; left out, it is the one the settings ask for.
    """
    observer = Observer(machine.resident_bytes)
    readiness = Readiness(observer)
    loader = Loader(settings, readiness, observer, obtain or (lambda say: _obtain(settings, say)))
    app = api.create(settings, readiness, observer, on_startup=[loader.start], on_shutdown=[loader.stop])
    return Observed(app, observer)


def serve(settings: Settings) -> None:
    """Serve until told to stop. Raises Invalid, before it listens, where the recorded model forbids the start."""
    record_file = Path(settings.data_dir, choice.RECORD_NAME)
    choice.decide(settings.model, settings.model_replaces, choice.read(record_file), record_file)
    config = uvicorn.Config(
        build(settings),
        host=settings.host,
        port=settings.port,
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=settings.stop_seconds_max,
    )
    uvicorn.Server(config).run()


def bench(settings: Settings, seconds: float, as_json: bool) -> str:
    """Return how fast the chosen model runs here, as a table or as JSON. Raises as `embed_svc.bench.run` does."""
    quieten_libraries()
    # As heavy as the model.
    from embed_svc import bench

    report = bench.run(settings, seconds)
    return bench.as_json(report) if as_json else report.table()


def _obtain(settings: Settings, say: Say) -> Model:
    quieten_libraries()
    # Two seconds of imports, while the server listens.
    from embed_svc.loading import obtain_model

    return obtain_model(settings, say)
