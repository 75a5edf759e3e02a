"""The tables of docs/agents.md, from the outcomes that runs have written down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.agent_lab.clients import AGENTS
from bench.agent_lab.scenarios import FORMS, WORDS
from bench.agent_lab.turns import Outcome, Turn

Outcomes = dict[tuple[str, str], list[Outcome]]
"""By scenario and side, in the order of the runs."""

NOT_RUN = "–"


def written(path: Path, outcome: Outcome) -> None:
    """Add a run to the file, so that nothing is lost where a later one is stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(outcome.record()) + "\n")


def read(path: Path) -> Outcomes:
    outcomes: Outcomes = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        outcome = _outcome(json.loads(line))
        outcomes.setdefault((outcome.scenario, outcome.side), []).append(outcome)
    return outcomes


def _outcome(record: dict[str, Any]) -> Outcome:
    turns = tuple(Turn(**turn) for turn in record["turns"])
    return Outcome(**{**record, "turns": turns, "sent_at": tuple(record["sent_at"])})


def line(outcome: Outcome) -> str:
    """One run, as it is told while others still go on."""
    lost = [turn for turn in outcome.turns if turn.answered is None]
    words = "".join(f"\n    {turn.agent} lost after {turn.ended:.0f} s: {_tail(turn.said)}" for turn in lost)
    told = f"{outcome.answers} of {len(outcome.turns)} answered, last {_seconds(outcome.last)}"
    return f"{outcome.scenario} {outcome.side}: {told}, {outcome.sends} sends, {outcome.refused} refused{words}"


def tables(outcomes: Outcomes) -> Iterator[str]:
    """Markdown, one table for each kind of scenario that was run."""
    calm = ("calm", "nothing challenged")
    groups = [calm, *((f"alone-{form}", WORDS[form]) for form in FORMS), ("tool", "crowded, after a tool's result")]
    present = [(group, words) for group, words in groups if any(name.startswith(f"{group}/") for name, _ in outcomes)]
    if present:
        yield from _alone(outcomes, present)
    rest = sorted({name for name, _ in outcomes if not name.startswith(("calm/", "alone-", "tool/", "shown/"))})
    if rest:
        yield from _several(outcomes, rest)


def _alone(outcomes: Outcomes, groups: list[tuple[str, str]]) -> Iterator[str]:
    yield "| agent |" + "".join(f" {words} | |" for _, words in groups)
    yield "|---|" + "---|---|" * len(groups)
    yield "| |" + " without | with |" * len(groups)
    for name, agent in AGENTS.items():
        cells = [_cell(outcomes.get((f"{group}/{name}", side), [])) for group, _ in groups for side in ("without", "with")]
        if set(cells) != {NOT_RUN}:
            yield f"| {agent.title} | " + " | ".join(cells) + " |"
    yield ""


def _cell(runs: Iterable[Outcome]) -> str:
    """Answered or not, seconds, sends: of the newest run, and how many of all ended in the answer where there are more."""
    taken = list(runs)
    if not taken:
        return NOT_RUN
    newest = taken[-1]
    ended = newest.last if newest.last is not None else newest.turns[0].ended
    more = f" ({sum(run.answers for run in taken)} of {len(taken)} runs)" if len(taken) > 1 else ""
    return f"{'yes' if newest.answers else 'no'}, {ended:.0f} s, {newest.sends}{more}"


def _several(outcomes: Outcomes, names: list[str]) -> Iterator[str]:
    yield "| agents at once | | answered | last answer | sends | refused | lost |"
    yield "|---|---|---|---|---|---|---|"
    for name in names:
        for side in ("without", "with"):
            for run in outcomes.get((name, side), []):
                lost = ", ".join(turn.agent for turn in run.turns if turn.answered is None) or "–"
                figures = f"{run.answers} of {len(run.turns)} | {_seconds(run.last)} | {run.sends} | {run.refused}"
                yield f"| {name} | {side} | {figures} | {lost} |"
    yield ""


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s"


def _tail(text: str) -> str:
    return " ".join(text.split())[-160:] or "(nothing printed)"
