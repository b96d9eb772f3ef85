"""The glossary as a check: words that a sentence for users must not use.

docs/contributing/glossary.md has the words to use. A pattern stands here for each word that was in use beside one of
them, or that hides who acts. It is narrow: it names a word that is wrong in every sentence a user can meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.unit.docs.texts import Text


@dataclass(frozen=True)
class Rule:
    """One word that is not used.

    :param pattern: the word, in any case
    :param instead: what to write
    :param why: what is wrong with it
    :param is_name: whether it is a name, so that it counts in code and in strings of one word too
    """

    pattern: str
    instead: str
    why: str
    is_name: bool = False

    def finds(self, text: str) -> list[str]:
        """Return what the pattern finds."""
        return [found.group() for found in re.finditer(self.pattern, text, re.IGNORECASE)]


RULES = (
    # Who acts, and who a message goes to.
    Rule(r"\bnobody\b|\bno[ -]one\b(?!-time)", "no recipient; or name the actor", "hides who acts"),
    Rule(r"\b(?:every|any|some)(?:body|one)\b", "recipient, owner, client", "hides who it is"),
    Rule(r"\bwhoever\b|\bwhom(?:ever)?\b", "recipient; or name the actor", "hides who it is"),
    Rule(r"\bpeople\b|\bpersons?\b", "recipients; you", "a recipient is a number or an address"),
    Rule(r"\bto each once\b|\bto how many\b", "at most once each; the number of", "no noun"),
    # Requests, their record and their outcome.
    Rule(r"\bpack(?:s|ed)?\b", "batch", "the concept is a batch"),
    Rule(r"\bledgers?\b|\bdeeds?\b", "journal; send spec", "the record is the journal"),
    Rule(r"\bclaim(?:s|ed|ing)?\b", "start, intent; lease", "an intent is recorded"),
    Rule(r"\bsettl(?:es?|ed|ing)\b", "resolve", "an outcome is resolved"),
    Rule(r"\bnoted\b|\bnotes (?:it|that|what|this|down)\b", "record", "the journal records"),
    Rule(r"\bdoubts?\b|\bdoubtful\b", "unresolved, unknown outcome", "a request is unresolved"),
    Rule(r"\bevidence\b", "probe; proof", "a probe establishes an outcome"),
    Rule(r"\bby hand\b", "manually; manual resolution", "resolving is manual resolution"),
    Rule(r"\bhappens? (?:only )?once\b|\bcampaign key\b", "idempotency key; sent once", "the concept is idempotency"),
    Rule(r"\bfates?\b|\b(?:became|becomes?) of\b", "recipient status, delivery status, outcome", "a status has a name"),
    Rule(r"\bfurther tr(?:y|ies)\b|\bcomes? again\b", "retry; the task is retried", "Airflow retries a task"),
    Rule(r"\brepeat(?:s|ed|ing)?\b", "retry; duplicate", "a request is retried, a report is a duplicate"),
    Rule(r"\b(?:taken|takes? (?:it|them|this|that|the \w+)) for\b", "treated as", "names no action"),
    Rule(r"\bsurely\b|\bsure to\b", "certainly; accepted", "the number accepted is a fact"),
    Rule(r"\bwhatever ends\b|\blast moments?\b", "retries, crashes and clears; graceful shutdown", "names no case"),
    Rule(r"\buntimely\b|\blateness\b", "stale run", "a run too late to send is stale"),
    Rule(r"\bnot (?:yet )?reached\b|\bnever reached\b", "not sent", "the outcome is 'not sent'"),
    # Delivery.
    Rule(
        r"\b(?:no|the|of|its|any) news\b|\barrivals?\b|\bhear[sd]?\b",
        "delivery report",
        "the service sends delivery reports",
    ),
    Rule(r"\btickets?\b", "callback token", "the URL holds a callback token"),
    Rule(r"\bdoors?\b", "endpoint", "a public URL is an endpoint"),
    Rule(r"\bdesk\b|\bhand(?:s|ed|ing)? in\b", "group commit; store", "reports are stored in a group commit"),
    Rule(r"\bhappenings?\b|\btellers?\b", "delivery event; publisher", "a publisher publishes delivery events"),
    Rule(r"\btell(?:s|ing)?\b|\b(?:un)?told\b", "report, show, publish; return", "names no action"),
    # Verbs that hide what is done.
    Rule(r"\bkept\b|\bkeeps\b", "store, retain", "data is stored or retained"),
    Rule(r"\bsays\b|\bsaid\b", "name, report, show, state", "documents and errors do not speak"),
    Rule(r"\bst(?:ands|ood)\b", "is, has, contains", "a record is in a file, it does not stand there"),
    Rule(r"\bbears?\b|\bborne\b", "carry, include", "a record has fields"),
    Rule(r"\b(?:the|an|its|no|each|every|this|that|of) answers?\b", "response", "RFC 9110: a request has a response"),
    Rule(r"(?:^|[.;:] )who (?!\w+\?)", "the recipients, the task, you", "a sentence names its actor"),
    # Guards and the rest.
    Rule(r"\b(?:the|a|our|its|own|one|another|same|this) stores?\b", "database", "store is a verb, and Airflow's"),
    Rule(r"\bdisturb(?:s|ed)?\b(?<!do not disturb)(?<!do-not-disturb)", "DND", "the flag is DND"),
    Rule(r"\bremember(?:s|ed|ing)?\b|\brecalls?\b", "cache", "lookups are cached"),
    Rule(r"\blook-ups?\b", "lookup", "one spelling"),
    Rule(r"\bbans?\b|\bbanned\b", "suppression list", "the list is the suppression list"),
    Rule(r"\bquiet hours\b", "send window", "the hours of sending are the send window"),
    Rule(r"\bbreaks? off\b|\bin trouble\b", "circuit breaker", "the circuit breaker stops a campaign"),
    Rule(r"\bt(?:ak|ook)\w* apart\b", "bisect", "a batch is bisected"),
    Rule(r"\bbad rows?\b", "invalid row", "a row that cannot be used is invalid"),
    Rule(r"\bdiscreet\w*\b|\bscrub\w*\b", "redact, mask", "secrets are redacted"),
    Rule(r"\boutcome files?\b|\boutcome_file\b", "results file", "the file is the results file"),
    Rule(r"\bshould (?:there|it|that|they|this) (?:be\b|not\b|have\b)", "if", "a condition begins with 'if'"),
    Rule(r"\bthere is nothing here\b|\bbe it\b|\bis at it\b", "not found; or", "names no event"),
    # Names that changed.
    Rule(r"\bcampaign_key\b", "idempotency_key", "renamed", True),
    Rule(r"\bjournal_window\b", "max_pending_requests", "renamed", True),
    Rule(r"\bif_unknown\b|\bsettle_timeout\b", "on_unknown, unknown_timeout", "renamed", True),
    Rule(r"\bstop_grace\b", "stop_grace_period", "renamed", True),
    Rule(r"\bretry_after_cap\b|\bmax_answer_bytes\b", "max_retry_after, max_response_bytes", "renamed", True),
    Rule(r"\bclear_as\b|\bsingle_sends\b", "empty_cell_value, include_single_messages", "renamed", True),
    Rule(r"\bConcernedSource\b|\bread_connection\b", "DeliveryEventSource, get_connection_settings", "renamed", True),
    Rule(r"\bnot_reached\b|\bbad_rows?\b|\bdo_not_disturb\b", "not_sent, invalid_row, dnd", "renamed", True),
    Rule(r"\bmark-(?:un)?sent\b|\bcpaas store\b", "journal resolve, cpaas db", "renamed", True),
)

EXCEPTIONS = {
    (
        "provider/cpaas_provider/delivery/tracking/permanent_failures/reasons.py",
        "said",
    ): "what mail servers write",
    ("docs/contributing/glossary.md", "quiet hours"): "the field's other word, so that a search finds the page",
}
"""What a rule finds and may stay: (file, the words found), and why."""

MOST_WORDS = 25
_WORD = re.compile(r"[\w…'-]*[A-Za-z…][\w…'-]*")
_END_OF_SENTENCE = re.compile(r"(?<=[.!?:])[\s)\"*]+|\n")


_ANY = re.compile("|".join(rule.pattern for rule in RULES), re.IGNORECASE)


def faults(texts: Iterable[Text]) -> Iterator[str]:
    """Yield a line for each word that is not to be used, and for each sentence that is too long or a chain."""
    for text in texts:
        for rule in RULES if _ANY.search(text.words) else ():
            if text.is_sentence or rule.is_name:
                for found in rule.finds(text.words):
                    if (text.place, found.strip().lower()) not in EXCEPTIONS:
                        yield f"{text.place}:{text.line}: {found!r}: write {rule.instead} ({rule.why})"
        for sentence in _END_OF_SENTENCE.split(text.words) if text.is_prose else ():
            if any(len(_WORD.findall(part)) > MOST_WORDS for part in sentence.split("; ")):
                yield f"{text.place}:{text.line}: more than {MOST_WORDS} words: {sentence}"
            if sentence.count("; ") > 1:
                yield f"{text.place}:{text.line}: a chain of semicolons: {sentence}"
