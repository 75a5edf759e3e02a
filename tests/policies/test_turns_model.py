"""Queue, slots, breaker and clients together, against any sequence of comings, outcomes and waits."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.breaker import LEASE_SECONDS, BreakerState
from policies.concurrency import KEPT_SECONDS, Key
from policies.hurdles import Refusal, Refused
from policies.kinds import Reason
from policies.queue import Asking, Place, Standing
from policies.settings import BreakerSettings, Concurrency, QueueSettings
from policies.shared import SharedBreaker
from policies.turns import Line

WAITS = st.one_of(st.sampled_from([0.0, 0.2, 1.0, 5.0, 25.0, 59.0, 60.0, LEASE_SECONDS]), st.floats(0, 100, allow_nan=False))
MODELS = ("glm-a", "glm-b")
HAS_A_TURN = (Standing.UNDER_WAY, Standing.ANSWERED)


class LineMachine(RuleBasedStateMachine):
    """The model keeps every place that came, and plays the layer: it wakes whom it is told to, and looks when it is told to."""

    @initialize(
        concurrency=st.sampled_from(["learn", "off", 1, 2]),
        seconds=st.sampled_from([0, 30, 280]),
        size=st.sampled_from([2, 1000]),
    )
    def start(self, concurrency: Concurrency, seconds: float, size: int) -> None:
        self.now = 1000.0
        self.breaker = SharedBreaker(BreakerSettings(), 59, upstream="zai")
        self.concurrency, self.seconds, self.size = concurrency, seconds, size
        self.line = Line(QueueSettings(seconds=seconds, size=size), lambda *_: self.breaker, lambda _: concurrency)
        self.places: list[Place] = []
        self.waited: set[Place] = set()
        self.permits: Counter[int] = Counter()

    # -- the layer ---------------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """Wake those that are due; nobody else may have moved out of waiting, and each is handed out once."""
        for place in self.line.due(self.now):
            assert place in self.waited, "handed out twice, or never waited"
            assert place.standing in (Standing.UNDER_WAY, Standing.TOLD, Standing.OVER)
            self.waited.discard(place)
            self.sees(place)
        assert all(place.standing is Standing.WAITING for place in self.waited), "somebody is not woken"

    def sees(self, place: Place) -> None:
        if place.standing is Standing.WAITING:
            self.waited.add(place)
        elif place.standing is Standing.UNDER_WAY:
            assert place.permit is not None
            self.permits[place.permit.serial] += 1
            assert self.permits[place.permit.serial] == 1, "a permit was given twice"
        elif place.standing is Standing.TOLD:
            assert place.told is not None
            assert place.told.left >= 0

    def chosen(self, which: int, *standings: Standing) -> Place | None:
        found = [place for place in self.places if place.standing in standings]
        return found[which % len(found)] if found else None

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(
        digest=st.sampled_from("abcd"),
        model=st.sampled_from(MODELS),
        side=st.booleans(),
        patience=st.sampled_from([0.0, 25.0, 99.0, 280.0]),
        holdable=st.booleans(),
    )
    def comes(self, digest: str, model: str, side: bool, patience: float, holdable: bool) -> None:
        asking = Asking("zai", "acc", model, digest, digest, side, patience, holdable=holdable)
        place = self.line.arrive(asking, self.now)
        self.places.append(place)
        self.sees(place)
        assert place.standing in (Standing.UNDER_WAY, Standing.WAITING, Standing.TOLD)
        if place.standing is Standing.WAITING:
            assert patience
            assert self.seconds
        self.notice()

    @rule(seconds=WAITS)
    def time_goes_by(self, seconds: float) -> None:
        """The timer of the layer, and nothing else, looks: nobody may wait past its patience by it."""
        end = self.now + seconds
        for _ in range(1000):
            look = self.line.next_look()
            if look is None or look > end:
                break
            assert look >= self.now, "a moment in the past"
            self.now = max(self.now, look)
            self.notice()
        else:
            raise AssertionError("the timer goes round and round")
        self.now = end

    @rule(which=st.integers(0, 50))
    def is_answered(self, which: int) -> None:
        if place := self.chosen(which, Standing.UNDER_WAY):
            self.line.answered(place, self.now)
            self.notice()

    @rule(which=st.integers(0, 50))
    def ends(self, which: int) -> None:
        if place := self.chosen(which, *HAS_A_TURN):
            self.line.ended(place, self.now)
            self.notice()

    @rule(which=st.integers(0, 50))
    def client_leaves(self, which: int) -> None:
        if place := self.chosen(which, Standing.WAITING):
            self.line.ended(place, self.now)
            self.waited.discard(place)
            self.notice()

    @rule(
        which=st.integers(0, 50),
        kind=st.sampled_from(Refused),
        wait=st.sampled_from([0.0, 30.0]),
        stated=st.sampled_from([None, 7.0, 3600.0]),
        curable=st.booleans(),
    )
    def is_refused(self, which: int, kind: Refused, wait: float, stated: float | None, curable: bool) -> None:
        if place := self.chosen(which, Standing.UNDER_WAY):
            before = self.line.others(place)
            self.line.refused(place, Refusal(kind, wait, stated, curable), self.now)
            self.sees(place)
            assert place.standing is Standing.TOLD or curable
            if kind is Refused.CROWD and self.concurrency == "learn":
                learnt = {row.key: row.limit for row in self.line.limits.listed(self.now)}
                assert learnt[place.asking.key] <= max(1, before)
            self.notice()

    @rule(which=st.integers(0, 50))
    def what_is_over_is_reported_again(self, which: int) -> None:
        if place := self.chosen(which, Standing.OVER, Standing.TOLD):
            told = place.told
            self.line.answered(place, self.now)
            self.line.refused(place, Refusal(Refused.CHALLENGE), self.now)
            self.line.ended(place, self.now)
            self.notice()
            assert place.standing is Standing.OVER
            assert place.told is told

    @rule(by=st.sampled_from(["open", "close"]))
    def by_hand(self, by: str) -> None:
        getattr(self.breaker, by)(self.now)
        if by == "close":
            self.line.release("zai", self.now)
        self.notice()

    @rule(seconds=st.sampled_from([0, 20, 280]))
    def settings_change(self, seconds: float) -> None:
        self.seconds = seconds
        self.line.update(QueueSettings(seconds=seconds, size=self.size), self.now)
        assert all(place.standing is Standing.OVER for place in self.waited), "all are let go"
        self.notice()

    @precondition(lambda self: self.waited)
    @rule()
    def process_ends(self) -> None:
        self.line.close(self.now)
        self.notice()
        assert not self.waited

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def who_has_a_turn_has_all_of_it_and_who_waits_has_nothing(self) -> None:
        for place in self.places:
            assert (place.permit is not None) == (place.standing in HAS_A_TURN)
        for model in MODELS:
            mine = [p for p in self.places if p.standing in HAS_A_TURN and p.asking.model == model]
            assert self.line.limits.under_way(Key("zai", "acc", model)) == len(mine), "a slot was lost or given twice"

    @invariant()
    def at_most_the_limit_is_sent(self) -> None:
        if isinstance(self.concurrency, int):
            assert all(self.line.limits.under_way(Key("zai", "acc", model)) <= self.concurrency for model in MODELS)

    @invariant()
    def nobody_waits_past_its_patience(self) -> None:
        assert set(self.line.waiting()) == self.waited
        for place in self.waited:
            look = self.line.next_look()
            assert look is not None
            assert look <= place.deadline
        assert len(self.waited) <= max(self.size, 0) + sum(place.refusals + place.crowded > 0 for place in self.waited)

    @invariant()
    def one_probe_at_most(self) -> None:
        probes = [p for p in self.places if p.standing is Standing.UNDER_WAY and p.permit and p.permit.probe]
        if self.breaker.current(self.now) is BreakerState.PROBING:
            assert probes

    @invariant()
    def whoever_waits_is_kept_by_something_that_ends(self) -> None:
        if self.waited:
            look = self.line.next_look()
            assert look is not None
            assert look <= min(place.deadline for place in self.waited)

    def teardown(self) -> None:
        if not hasattr(self, "line"):
            return
        self.time_goes_by(600.0)
        assert not self.waited, "a request waits for ever"
        for place in self.places:
            self.line.ended(place, self.now)
        self.time_goes_by(KEPT_SECONDS)
        last = self.line.arrive(Asking("zai", "acc", MODELS[0], "last", "last", patience=280.0), self.now)
        assert last.standing is Standing.UNDER_WAY, "a permit was lost"
        assert last.told is None or last.told.why is not Reason.QUEUE_FULL


LineMachine.TestCase.settings = settings(stateful_step_count=50)
TestLineMachine = LineMachine.TestCase
