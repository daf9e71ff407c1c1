"""What NVFlare's servers and clients load by name: an evaluator, and a device."""

import threading
from typing import Any, ClassVar

from nvflare.apis.dxo import DXO, DataKind, from_dict
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.edge.simulation.device_task_processor import DeviceTaskProcessor
from nvflare.widgets.widget import Widget

from peers import emulated


class Evaluator(Widget):  # type: ignore[misc]
    """Notes how accurate each new global model is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_event_handler(AppEventType.AFTER_AGGREGATION, self._averaged)
        self.register_event_handler(AppEventType.GLOBAL_WEIGHTS_UPDATED, self._buffered)

    def _averaged(self, event_type: str, fl_ctx: FLContext) -> None:
        model = fl_ctx.get_prop(AppConstants.AGGREGATION_RESULT)
        emulated.evaluate(emulated.loaded(model.params))

    def _buffered(self, event_type: str, fl_ctx: FLContext) -> None:
        # Version 1 is the model that all begin with.
        if fl_ctx.get_prop(AppConstants.CURRENT_ROUND) > 1:
            model = fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)["weights"]
            emulated.evaluate(emulated.loaded(model))


class Device(DeviceTaskProcessor):  # type: ignore[misc]
    """A simulated device of NVFlare's edge mode; learners are taken one by one."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _learners: ClassVar[dict[str, int]] = {}

    def setup(self, job: Any) -> None:
        """Nothing to do."""

    def shutdown(self) -> None:
        """Nothing to do."""

    def process_task(self, task: Any) -> dict[str, Any]:
        """Train, and return the change of each parameter as a list."""
        with self._lock:
            names = self._learners
            learner = names.setdefault(self.device.device_id, len(names))
        before = from_dict(task.task_data).data
        model = emulated.loaded(before)
        began = {key: value.clone() for key, value in model.state_dict().items()}
        emulated.train(model, learner)
        change = {
            key: (value - began[key]).numpy().tolist()
            for key, value in model.state_dict().items()
        }
        sent: dict[str, Any] = DXO(
            data_kind=DataKind.WEIGHT_DIFF, data={"dict": change}
        ).to_dict()
        return sent
