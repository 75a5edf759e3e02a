"""Ruling over a finding, what it means for the client: let it through, answer in its place, send the request again, or end its stream.

Permanent refusals are asked for before anything transient, so that a "try again" in one never causes a retry: the
recogniser already tells them apart, and here only the kinds marked transient can be sent again.
"""

from __future__ import annotations

from dataclasses import replace

from policies import comments
from policies.breaker import tell
from policies.comments import Comment, described, tries
from policies.decisions import Answer, Commit, Decision, End, Queue, Replace, Resend
from policies.exchange import Exchange
from policies.kinds import Challenge, Family, Finding, Kind, Reason, Role
from policies.refusal.error_kinds import HIDDEN_STATUS
from policies.replays import Attempt, Why
from policies.reply import dialects, wording

CHALLENGES: dict[Challenge, Reason] = {
    Challenge.BUSY: Reason.BUSY,
    Challenge.CAPTCHA: Reason.CAPTCHA,
    Challenge.BLOCKED: Reason.BLOCKED,
    Challenge.BODY_SIZE: Reason.BODY_SIZE,
}

REASONS = {kind: Reason(kind.value) for kind in Kind if kind is not Kind.CHALLENGE}

WAITING = frozenset({Kind.CHALLENGE, Kind.OVERLOAD})
"""Kinds that are answered with 529 or 503 and a wait."""


def reason_of(finding: Finding) -> Reason:
    if finding.kind is Kind.CHALLENGE:
        return CHALLENGES[finding.challenge or Challenge.CAPTCHA]
    return Reason.CUT if finding.kind is Kind.NOTHING and finding.cut else REASONS[finding.kind]


class Ruling:
    """Ruling over one finding in one exchange at one moment; ``now`` is monotonic seconds, ``wall`` Unix seconds."""

    def __init__(self, ex: Exchange, finding: Finding, now: float, wall: float) -> None:
        self.ex, self.call, self.settings = ex, ex.call, ex.state.settings
        self.finding = self._by_body_size(finding)
        self.now, self.wall = now, wall
        self.reason = reason_of(self.finding).value
        self._not_again = ""

    def held(self) -> Decision:
        """Decide while the headers are still held."""
        ex, finding = self.ex, self.finding
        if not ex.generation:
            return self._aside()
        if finding.kind is Kind.ANSWER or finding.ends_answer:
            return self._answered()
        again = self._again()
        if again is not None:
            return again
        wait = 0 if ex.crowds(finding) else self._wait()
        ex.account_for(finding, self.now, self.wall, told=wait)
        if ex.waits_in_line:
            return Queue(reason=self.reason, finding=finding, attempts=ex.sends)
        if finding.honest:
            return self._commit(self._after_attempts())
        return self._refused(wait or self._wait())

    def unsent(self) -> Replace:
        """Answer a refusal whose re-send did not reach the upstream: it stands."""
        ex, finding = self.ex, self.finding
        wait = self._wait()
        ex.account_for(finding, self.now, self.wall, told=wait, over=True)
        return self._told(wait) if finding.kind in WAITING else self._told(self._limited_wait())

    def waited(self, left: float) -> Replace:
        """Answer a refusal that was waited out here as long as its client bears, with the seconds that are ``left``."""
        return self._told(tell(left, self.settings.retry_after.cap))

    def running(self, *, withheld: bool) -> End:
        """End a running stream at the refusal in it; ``withheld``: no frame can follow."""
        ex, finding = self.ex, self.finding
        wait = ex.wait_for(finding, self.now)
        ex.account_for(finding, self.now, self.wall, told=wait, over=True)
        message = self._hopeless_size() if finding.challenge is Challenge.BODY_SIZE else self._message(wait)
        return End(
            dialects.error_frame(
                self.call.surface.wire,
                finding,
                message=message,
                wait=wait,
                request_id=ex.request_id,
                user_agent=ex.agent,
            ),
            withheld,
            reason=self.reason,
            comment=comments.ENDED.say(ex.state.enforces, what=described(self.finding), wait=wait),
            finding=finding,
            wait=wait,
            attempts=ex.sends,
        )

    # -- the kinds --------------------------------------------------------------------------------------------

    def _by_body_size(self, finding: Finding) -> Finding:
        """The finding, by size where chat.qwen.ai challenges each body at or above the limit: Rfym21/Qwen2API#147, 3 of 3 from 129 KB."""
        sized = (
            finding.kind is Kind.CHALLENGE
            and finding.challenge is not Challenge.BLOCKED
            and self.ex.generation
            and self.call.surface.family is Family.QWEN_WEB
            and self.call.size >= self.settings.qwen_web.body_limit_bytes
        )
        return replace(finding, challenge=Challenge.BODY_SIZE, transient=False) if sized else finding

    def _aside(self) -> Decision:
        """Decide off the generation paths: a challenge is told truthfully, on a preparation step any hidden refusal; no strike."""
        finding, settings = self.finding, self.settings.retry_after
        if finding.kind is Kind.CHALLENGE and not finding.honest:
            if finding.challenge is Challenge.BLOCKED:
                self.ex.account_for(finding, self.now, self.wall)  # the account is blocked whatever it asked
                return self._overloaded(settings.cap)
            return self._overloaded(tell(finding.wait or settings.challenge, settings.cap))
        hidden = self.call.surface.role is Role.PREPARATION and self.ex.head is not None and self.ex.head.status < 400
        if not hidden or finding.ends_answer or finding.kind in (Kind.ANSWER, Kind.NOTHING):
            return self._commit()
        if finding.kind is Kind.OVERLOAD:
            return self._overloaded(tell(finding.wait or settings.overload, settings.cap))
        limited = finding.kind is Kind.RATE_LIMIT
        return self._hidden(finding.status, tell(finding.wait or settings.rate_limit, settings.cap) if limited else None)

    def _answered(self) -> Commit:
        self.ex.answer_began(self.now)
        if not self.ex.resends:
            return self._commit()
        first = self.ex.resends[0].finding
        assert first
        said = comments.say(comments.ANSWERED_AGAIN, what=described(first), tries=tries(self.ex.sends))
        return self._commit(comment=said)

    def _again(self) -> Resend | None:
        ex, finding = self.ex, self.finding
        if not ex.state.enforces or not finding.transient or not ex.replay:
            return None
        if ex.patience.waits and ex.crowds(finding):
            return None  # its slot is worth waiting for, and no wait of a replay's
        attempt = Attempt(
            sends=ex.sends,
            started=ex.started,
            account=self.call.account,
            digest=self.call.digest,
            one_time_token=self.call.one_time_token is not None,
            breaker_closed=ex.state.breaker(self.call).closed,
            settings=ex.state.replay_of.get(self.call.surface.upstream, self.settings.replay),
        )
        step = ex.state.replays.next(attempt, finding, self.now)
        if isinstance(step, Why):
            self._not_again = step.value
            return None
        number, most = ex.sends + 1, attempt.settings.max_attempts
        what = described(self.finding)
        comment = comments.say(comments.SENT_AGAIN, what=what, after=step, number=number, most=most)
        return Resend(step, reason=self.reason, comment=comment, finding=finding, attempts=number)

    def _wait(self) -> int:
        """Seconds before which the request is not sent again, remembered where its client is told so."""
        finding = self.finding
        if finding.honest:
            return tell(finding.wait or 0.0, self.settings.retry_after.cap)
        if finding.kind not in WAITING or finding.challenge is Challenge.BODY_SIZE:
            return 0
        return self.ex.wait_for(finding, self.now)

    def _refused(self, wait: int) -> Decision:
        """Decide over a refusal, or no answer at all, that is not sent again."""
        ex, finding = self.ex, self.finding
        if finding.challenge is Challenge.BODY_SIZE:
            return self._body_size()
        if finding.kind in WAITING:
            return self._overloaded(wait)
        if finding.kind is Kind.NOTHING:
            return self._cut() if finding.cut else self._commit()
        if ex.head is not None and ex.head.status < 400:
            return self._hidden(finding.status, self._limited_wait())
        return self._passed()

    def _body_size(self) -> Replace:
        message, limit = self._hopeless_size(), self.settings.qwen_web.body_limit_bytes
        answer = dialects.too_large(
            self.call.surface.wire, reason=Reason.BODY_SIZE, message=message, code=dialects.BODY_SIZE_CODE
        )
        return self._replace(answer, comments.BODY_SIZE.say(self.ex.state.enforces, size=self.call.size, limit=limit))

    def _hopeless_size(self) -> str:
        """Remember that this body is challenged each time; words for it."""
        self.ex.state.refusals.hopeless(self.call, "body_size", self.finding.code, self.now)
        limit = self.settings.qwen_web.body_limit_bytes
        return wording.body_size(size=self.call.size, limit=limit, site=self.ex.site, code=self.finding.code)

    def _overloaded(self, wait: int) -> Replace:
        answer = dialects.overloaded(
            self.call.surface.wire,
            reason=self.reason,
            message=self._message(wait),
            wait=wait,
            challenge=self.finding.kind is Kind.CHALLENGE,
            request_id=self.ex.request_id,
        )
        return self._became(answer, comments.OVERLOADED, wait)

    def _told(self, wait: int | None) -> Replace:
        """Answer a refusal whose headers are gone, in its own status."""
        if self.finding.kind in WAITING:
            return self._overloaded(wait or 0)
        return self._hidden(self.finding.status or (self.ex.head.status if self.ex.head else None), wait)

    def _limited_wait(self) -> int | None:
        return self.ex.wait_for(self.finding, self.now) if self.finding.kind is Kind.RATE_LIMIT else None

    def _hidden(self, status: int | None, wait: int | None) -> Replace:
        """Give an error that is dressed up as a success a real status, its code and text kept."""
        finding = self.finding
        answer = dialects.hidden(
            self.call.surface.wire,
            finding,
            reason=self.reason,
            status=status if status is not None and status >= 400 else HIDDEN_STATUS[finding.kind],
            message=wording.hidden(finding, wait=finding.wait, attempts=self.ex.sends),
            wait=wait,
            should_retry=False if finding.kind in (Kind.QUOTA, Kind.ACCOUNT) else None,
            request_id=self.ex.request_id,
        )
        return self._became(answer, comments.HIDDEN, wait)

    def _passed(self) -> Commit:
        """Pass an honest status of the upstream's own, with at most a header that clients need to act on it."""
        finding, headers = self.finding, list(self._after_attempts())
        if finding.kind is Kind.RATE_LIMIT and finding.wait and finding.wait_source in ("body", "text"):
            headers.append(("Retry-After", str(tell(finding.wait, self.settings.retry_after.cap))))
        if finding.kind in (Kind.QUOTA, Kind.ACCOUNT):
            headers.append(("x-should-retry", "false"))
        said = comments.say(comments.PASSED, what=described(finding), tries=tries(self.ex.sends)) if finding.row else None
        return self._commit(tuple(headers), said)

    def _cut(self) -> Replace:
        ex = self.ex
        message = wording.bad_gateway(ex.site, attempts=ex.sends)
        answer = dialects.bad_gateway(self.call.surface.wire, reason=self.reason, message=message, request_id=ex.request_id)
        return self._replace(answer, comments.CUT.say(ex.state.enforces))

    # -- values and words -------------------------------------------------------------------------------------

    def _commit(self, headers: tuple[tuple[str, str | None], ...] = (), comment: Comment | None = None) -> Commit:
        return Commit(
            headers,
            reason=self.reason,
            comment=comment,
            finding=self.finding,
            attempts=self.ex.sends,
            not_again=self._not_again,
        )

    def _replace(self, answer: Answer, comment: Comment, wait: int | None = None) -> Replace:
        return Replace(
            answer,
            reason=self.reason,
            comment=comment,
            finding=self.finding,
            wait=wait,
            attempts=self.ex.sends,
            not_again=self._not_again,
        )

    def _became(self, answer: Answer, deed: comments.Deed, wait: int | None) -> Replace:
        ex, inside = self.ex, self.ex.head.status if self.ex.head else 200
        what, again = described(self.finding), tries(ex.sends)
        said = deed.say(ex.state.enforces, what=what, inside=inside, status=answer.status, wait=wait or 0, tries=again)
        return self._replace(answer, said, wait)

    def _after_attempts(self) -> tuple[tuple[str, str | None], ...]:
        """Headers that a refusal of the upstream's own carries after re-sends."""
        sends = self.ex.sends
        return (("X-Breakwater", f"{self.reason}; after {sends} attempts"),) if sends > 1 else ()

    def _message(self, wait: int) -> str:
        finding, site, attempts = self.finding, self.ex.site, self.ex.sends
        true_wait = max(finding.wait or 0.0, float(wait))
        if finding.kind is Kind.OVERLOAD:
            return wording.overload(finding, site=site, attempts=attempts, wait=true_wait)
        if finding.kind is not Kind.CHALLENGE:
            return wording.hidden(finding, attempts=attempts, wait=true_wait)
        spent = self.call.one_time_token is not None
        return wording.challenge(finding, site=site, attempts=attempts, wait=true_wait, token_spent=spent)
