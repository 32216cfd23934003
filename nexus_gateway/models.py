"""Models that load in the background: whoever needs one waits for it, or learns why there is none."""

import gc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio
import structlog

from adapters.ports import ModelError, ModelUnusable

log = structlog.get_logger(__name__)

ModelT = TypeVar("ModelT", covariant=True)  # noqa: PLC0105 - a slot of an adapter is one of its Protocol


class ModelSlot(Generic[ModelT]):
    """One model's place. `run` loads and keeps it until cancelled."""

    def __init__(self, what: str, open_model: Callable[[], AbstractAsyncContextManager[ModelT]]) -> None:
        self.what = what
        self._open = open_model
        self._settled = anyio.Event()
        self._model: ModelT | None = None
        self._error: ModelError | None = None

    @property
    def settled(self) -> bool:
        """Whether loading has ended, well or not."""
        return self._settled.is_set()

    @property
    def error(self) -> ModelError | None:
        """Why there is no model."""
        return self._error

    async def run(self) -> None:
        """Load the model and keep it. A model that can't be loaded is an answer to `get`, not a crash."""
        started = anyio.current_time()
        try:
            async with self._open() as model:
                self._model = model
                self._settled.set()
                # What a model brings into memory stays. Looking through it for garbage would hold up every call
                # for 300 ms, again and again.
                gc.freeze()
                log.info("model.ready", what=self.what, seconds=round(anyio.current_time() - started, 2))
                await anyio.sleep_forever()
        except ModelError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a model must not take the gateway down
            self._fail(ModelUnusable(f"the {self.what} failed: {type(error).__name__}: {error}"))

    async def get(self) -> ModelT:
        """The model, waiting while it loads. Raises ModelError."""
        await self._settled.wait()
        if self._error is not None:
            raise self._error
        if self._model is None:
            raise ModelUnusable(f"the {self.what} is gone: the gateway is shutting down")
        return self._model

    def _fail(self, error: ModelError) -> None:
        self._error, self._model = error, None
        self._settled.set()
        log.error("model.failed", what=self.what, cause=str(error))
