"""Options that say who runs the partitions, and the engine that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quire.errors import InvalidOption

if TYPE_CHECKING:
    from quire.corpus.engines import Engine

Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes (1 by default), or tasks of Ray at a time (by default as many as it has "
        "room for)."
    ),
]
EngineName = Annotated[
    str, typer.Option(help="local: processes of this machine. ray: tasks of a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="HOST:PORT of a Ray cluster; by default what RAY_ADDRESS says, one that was started "
        "on this machine, or one that ends with the run."
    ),
]
TaskCpus = Annotated[float | None, typer.Option(help="CPUs that Ray gives to each task: 1, 4, …")]
TaskMemory = Annotated[
    str | None, typer.Option(help="Memory that Ray sets aside for each task: 2G, …")
]


def engine_of(
    name: str,
    workers: int | None,
    ray_address: str | None,
    task_cpus: float | None,
    task_memory: str | None,
) -> Engine:
    """The engine; options of Ray are errors for another one."""
    from quire.corpus.engines import choose_engine
    from quire.corpus.engines.ray import RayEngine
    from quire.options import parse_size

    given = {"ray-address": ray_address, "task-cpus": task_cpus, "task-memory": task_memory}
    if name == "ray":
        return RayEngine(
            address=ray_address,
            workers=workers,
            cpus=1 if task_cpus is None else task_cpus,
            memory=None if task_memory is None else parse_size("--task-memory", task_memory),
        )
    for option, value in given.items():
        if value is not None:
            raise InvalidOption(
                f"--{option} is for Ray, but the engine is {name!r}; say --engine ray, or leave "
                "it out"
            )
    return choose_engine(name, workers)
