"""Names of the files of a run directory, as docs/reference/run_directory.md describes them."""

from pathlib import Path

EXPERIMENT = "experiment.yaml"  # makes a directory a run; a workspace has one too
METHOD = "method.json"
INIT_FROM = "init_from.json"
WANDB = "wandb.json"
LINEAGE = "lineage.jsonl"
METRICS = "metrics.jsonl"
PROVENANCE = "provenance.jsonl"
RESULT = "result.json"
FINAL_SELECTION = "final_selection.json"  # of a workspace, among the champions of its workers


def is_workspace(path: Path) -> bool:
    """True where workers share this directory."""
    return (path / "workers").is_dir() and (path / "slots").is_dir()
