from operations.metrics import Counts
from operations.timeline import HEIGHT, MINUTES, WIDTH, Timeline

HOUR = 1_700_000_000 // 60 * 60.0


def counts(sent: int, refused: int = 0) -> Counts:
    return Counts(sends={"zai": sent}, avoided={("zai", "breaker_open"): refused})


def test_each_minute_has_what_came_in_it_and_the_newest_is_at_the_right() -> None:
    timeline = Timeline()
    timeline.look(counts(2), (), {}, HOUR)
    timeline.look(counts(3), (), {"zai": 1}, HOUR + 30)
    timeline.look(counts(4, 5), ("zai",), {"zai": 4}, HOUR + 60)
    timeline.look(counts(4, 5), (), {"zai": 2}, HOUR + 70)
    before, now = timeline.pictures(HOUR + 70)["zai"]
    assert (now.x, before.x) == ((MINUTES - 1) * WIDTH, (MINUTES - 2) * WIDTH)
    assert now.sent + now.refused == HEIGHT
    assert before.sent == 3 * now.sent
    assert now.refused == 5 * now.sent
    assert (before.waiting, now.waiting) == (HEIGHT / 4, HEIGHT)
    assert (before.paused, now.paused) == (False, True)


def test_what_is_older_than_an_hour_is_gone_and_the_ring_is_bounded() -> None:
    timeline = Timeline()
    for minute in range(500):
        timeline.look(counts(minute), (), {}, HOUR + 60 * minute)
    assert len(timeline.minutes) == MINUTES
    assert len(timeline.pictures(HOUR + 60 * 499)["zai"]) == MINUTES
    assert timeline.pictures(HOUR + 60 * 600) == {}


def test_an_hour_without_anything_has_no_picture() -> None:
    timeline = Timeline()
    timeline.look(Counts(), (), {}, HOUR)
    assert timeline.pictures(HOUR) == {}


def test_a_clock_that_went_back_draws_nothing_of_the_future() -> None:
    timeline = Timeline()
    timeline.look(counts(1), (), {}, HOUR + 6000)
    assert timeline.pictures(HOUR) == {}
