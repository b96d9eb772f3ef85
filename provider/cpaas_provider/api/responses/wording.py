"""Reads sentences and words of a response: whether they speak of an acceptance, of a fault of a server, of a refusal.

A sentence such as "was not sent" or "must be created first" does not speak of an acceptance. "Some were not sent" does.
"""

from __future__ import annotations

import re

_ACCEPTANCE = re.compile(
    r"\b(?:accepted|queued|enqueued|sent|submitted|scheduled|delivered|dispatched|processed|processing|created|"
    r"succe\w*|ok|okay|partial\w*|buffered|relayed|forwarded(?! for)|transmitted|done|completed|"
    r"in (?:progress|flight|transit|process)|handed (?:over|off)|gone out|went (?:out|through)|acknowledged|initiated|"
    r"charged|debited|billed|will (?:be )?retr(?:y|ied)|"
    r"(?:request|message|messages|sms|email|been) received(?! with)|"
    r"pending(?! (?:approval|review|verification|registration|activation)))\b"
    r"(?! (?:(?:content |phone )?(?:values?|formats?|types?|ranges?|characters?|countries|networks?|lengths?|amounts?|"
    r"channels?|data|form)|time|ms|seconds|duration)\b)"
)
_MANY = r"(?:recipients?|messages?|numbers?|sms|emails?|address(?:es)?|contacts?)"
_PARTIAL = re.compile(
    rf"\b(?:(?:some|several|(?<!too )many|most|part)(?: of (?:the |your |these )?)? ?{_MANY}|"
    rf"(\d{{1,9}}) (?:out )?of (?:the )?(?!\1\b)\d{{1,9}}(?: {_MANY})?)(?: (?:has|have|was|were|could|did))?"
    r"(?: failed\b(?! validation)|(?: not|n['\u2019]t) (?:be |been )?"
    r"(?:sent|delivered|accepted|queued|processed|submitted|reached)\b)"
    r"|\b(?:deliver|send) (?:it )?to (?:\d{1,9}|one|some|several) of\b"
)
"""A part of the recipients was refused, so the service may have accepted the others."""
_WHOLE_STATUS = re.compile(
    r"sending|queue?ing|delivering|received|published|in queue|en ?route|waiting|acceptd|delivrd|esme rok|ack"
)
"""Words that speak of an acceptance only where they are the whole text."""
_DENIAL_BEFORE = re.compile(
    r"(?:(?:\b(?:not|never|no|none|nothing|cannot|neither|nor|without|unable|fail|fails|failed|failure|zero|0|too many|"
    r"max(?:imum)? number of)|n['\u2019]t)"
    r"(?: (?:to|be|been|have|has|had|was|were|is|are|could|being|get|the|a|any|your|this|these|messages?|sms|emails?|"
    r"requests?|recipients?|numbers?|batch|of(?: (?:the |your |these )?\d{1,9})?|that|it|successfully)){0,6}"
    r"|\b(?:must|needs? to|ha(?:s|ve) to|required to|can only|may only)(?: only)?(?: be)?"
    # A condition or a rule, which the request did not meet.
    r"|\bbefore [^.;]{1,60} can(?: only)? be|\bonly (?!the|some|part|few|those|\d)(?:[^.;:]|\.\d){1,40} (?:is|are)"
    r"|\b(?:invalid|missing|bad|wrong|incorrect) (?:data|parameters?|values?|fields?|headers?|payload|credentials|"
    r"body|json)"
    r") \Z"
)
_DENIAL_AFTER = re.compile(
    r"[\"']? ?[:=] ?[\"']?(?:false|no|none|null|0)\b| per (?:second|minute|hour|day)\b"
    r"| (?:is|are|was|were) (?:invalid|incorrect|malformed|not valid)\b"
    r"| (?:outside|from|without) [^.;:]{1,40} (?:is|are|will be) (?:blocked|rejected|denied|"
    r"not (?:allowed|permitted))\b"
)
_BY_CLIENT = re.compile(
    r"\b(?:you(?: have|['\u2019]ve)?|browser(?: \(or proxy\))?|client|https? request was|request you) \Z"
)
"""Before "sent": what the client sent to the service."""
_OTHER_SUBJECT = re.compile(
    r"\b(?:sender(?: ids?| names?| with this name)?|accounts?|templates?|domains?|api keys?|verification|approval|"
    r"review|registration|activation)(?: (?:status|is|was|has|have|still|already|been)){0,4} \Z"
)
"""Before "created" or "pending": something else than a message."""
_DENIED_WITHIN = 100
"""How many characters before a word are searched for a denial."""
_FAULT = re.compile(
    r"\b(?:timed? ?out|upstream|gateway|backend|unavailable|overload\w*|unhandled|uncaught|traceback|panic|crash\w*|"
    r"deadlock|(?:internal|server|unexpected|unknown|database|network|connection|connect|system|general|fatal) "
    r"(?:error|failure|exception)|temporary (?:error|failure)|internal server|something went wrong|deadline exceeded|"
    r"service (?:is )?down|connection (?:was )?(?:reset|refused|lost|closed|aborted)|closed connection|"
    r"socket hang ?up|broken pipe|out of memory|segmentation fault|unexpected eof|sqlstate|"
    r"e5\d\d|e(?:conn\w+|timedout|pipe|hostunreach|netunreach|ai again|notfound)|"
    r"(?:null ?pointer|null reference|runtime|sql|io|socket|illegal state) ?exception|"
    r"(?:http|status|code|error|err)[ :/#.]{0,3}(?:1[. ][01] )?5\d\d|"
    r"5\d\d (?:internal|server|service|bad|not implemented))\b"
)
_REFUSAL = re.compile(
    r"\b(?:invalid|not|no|cannot|reject\w*|refuse\w*|declin\w*|block\w*|blacklist\w*|barred|banned|deny|denied|fail\w*|error|"
    r"unknown|unsupported|unreachable|undeliver\w*|missing|malformed|wrong|bad|incorrect|unsubscribed|opted out|dnd|"
    r"disabled|suspended|landline|forbidden|too long|too short|inactive|expired|suppressed|must|required)\b|"
    r"n['\u2019]t\b"
)
_SOFTENED = re.compile(
    r"\b(?:warn\w*|note|notice|info\w*|delay\w*|slow\w*|later|retry|retried|retries|retrying|will|may|might|possibly|but|"
    r"however|deprecated|still|default|using|used|assumed|corrected|replaced|instead|converted|truncated|duplicates?|twice|"
    r"no (?:error|issue|problem|fault))\b"
)
"""Words of a warning or a correction, which does not say that a recipient was rejected."""
_REFUSING_STATUS = re.compile(
    r"\b(?:errors?|err|fail\w*|fatal|declined|nok|ko|un(?!known\b)\w+|conflict|exceeded|exhausted|insufficient|gone|"
    r"illegal|abort\w*|violat\w*|out of)\b"
)
"""A status that speaks of a refusal, beside the words of ``_REFUSAL``."""
_NEW_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s_\-]+")


def as_words(text: str) -> str:
    """Return a name or a sentence as words in lower case, with a blank between them."""
    return _SEPARATORS.sub(" ", _NEW_WORD.sub(" ", text)).strip().lower()


def speaks_of_acceptance(text: str) -> bool:
    """Tell whether a sentence says that something was accepted."""
    return has_acceptance(as_words(text))


def speaks_of_refusal(text: str) -> bool:
    """Tell whether a sentence says that something was refused, and is no mere warning."""
    words = as_words(text)
    return bool(_REFUSAL.search(words)) and not _SOFTENED.search(words) and not has_acceptance(words)


def has_acceptance(words: str) -> bool:
    """Tell whether words say that something was accepted, all of it or a part."""
    if _WHOLE_STATUS.fullmatch(words) or _PARTIAL.search(words):
        return True
    return not all(_is_denied(words, match) for match in _ACCEPTANCE.finditer(words))


def mentions_acceptance(words: str) -> bool:
    """Tell whether words name an acceptance."""
    return _ACCEPTANCE.search(words) is not None


def has_fault(words: str) -> bool:
    """Tell whether words say that a server failed."""
    return _FAULT.search(words) is not None


def has_refusal(words: str) -> bool:
    """Tell whether words say that something was refused."""
    return _REFUSAL.search(words) is not None


def is_refusing_status(words: str) -> bool:
    """Tell whether a status speaks of a refusal. Every other one may speak of an acceptance."""
    return has_refusal(words) or _REFUSING_STATUS.search(words) is not None


def _is_denied(words: str, match: re.Match[str]) -> bool:
    """Tell whether the words around a word of acceptance take it back."""
    before = (words, max(0, match.start() - _DENIED_WITHIN), match.start())
    if _DENIAL_BEFORE.search(*before) or _DENIAL_AFTER.match(words, match.end()):
        return True
    if match[0] == "sent":
        return bool(_BY_CLIENT.search(*before)) and not words[match.end() : match.end() + 2].strip().isdigit()
    return match[0] in ("created", "pending") and _OTHER_SUBJECT.search(*before) is not None
