"""Parts of a job's model that some of its learners train, and what they cost."""

import copy

from melisma.algorithms.task import ScheduledTask
from melisma.jobs.building import Left, names_of
from melisma.jobs.options import wire_of
from melisma.jobs.schema import Job
from melisma.learning.losses import loss_of, transform_of
from melisma.learning.submodels import Example, Part, submodel_of
from melisma.learning.submodels.cost import cost_of, whole_of

#: Samples by which a model is tried; two of them are enough for batch norm.
TRIED = 4


def parts_of(job: Job, task: ScheduledTask) -> tuple[dict[str, Part], dict[str, Left]]:
    """Return each learner's part by name, and what is left of laws by submodel.

    Raises ConfigError where the model has no such part.
    """
    written = {g.submodel for g in job.learners if g.submodel is not None}
    if not written:
        return {}, {}
    few = transform_of(task.training)(task.data.train[:TRIED])
    example, wire = Example(loss_of(task.training), few), wire_of(job)
    model = copy.deepcopy(task.model).cpu()
    whole = cost_of(whole_of(model), model, example, wire)
    made, left = dict[str, Part](), dict[str, Left]()
    for one in sorted(written):
        made[one] = part = submodel_of(one).part(model, example)
        cost = cost_of(part, model, example, wire)
        left[one] = Left(cost.step(whole), cost.fixed(whole))
        device = next(task.model.parameters()).device
        part.model.to(device)
    each = [group for group in job.learners for _ in range(group.count)]
    parts = {
        name: made[group.submodel]
        for name, group in zip(names_of(job), each, strict=True)
        if group.submodel is not None
    }
    return parts, left
