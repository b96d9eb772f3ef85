// On the search page: recognises a pasted error message and shows its entry above the other results.
"use strict";

(() => {
  const LEAST_WORDS = 3;
  const LEAST_SHARE = 0.5;
  const MOST_SHOWN = 3;
  const NEARLY_AS_GOOD = 0.6;

  const wordsOf = (text) => text.toLowerCase().match(/[a-z0-9_]+/g) ?? [];

  // A word counts the more the fewer messages have it, and most if none has it: the query is then about another thing.
  const weights = (messages) => {
    const counts = new Map();
    for (const message of messages) {
      for (const word of new Set(message.words)) counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    return (word) => Math.log(1 + messages.length / (counts.get(word) ?? 1));
  };

  const sum = (words, weigh) => [...words].reduce((total, word) => total + weigh(word), 0);

  const ranked = (query, messages) => {
    const weigh = weights(messages);
    const asked = new Set(wordsOf(query));
    const whole = sum(asked, weigh);
    if (asked.size < LEAST_WORDS || whole === 0) return [];
    const found = [];
    for (const message of messages) {
      const known = new Set(message.words);
      const shared = new Set([...asked].filter((word) => known.has(word)));
      if (shared.size < LEAST_WORDS) continue;
      const common = sum(shared, weigh);
      // What was pasted may be the beginning of the message, or the message and what surrounds it in a log.
      const share = common / Math.min(whole, sum(known, weigh));
      if (share >= LEAST_SHARE) found.push({ message, score: share * common });
    }
    found.sort((one, other) => other.score - one.score);
    return found.slice(0, MOST_SHOWN).filter(({ score }) => score >= NEARLY_AS_GOOD * found[0].score);
  };

  const show = (found) => {
    const place = document.getElementById("search-results");
    if (!place || found.length === 0) return;
    const box = document.createElement("section");
    box.id = "message-results";
    const title = document.createElement("h2");
    title.textContent = found.length === 1 ? "This error message" : "Error messages like this";
    const list = document.createElement("ul");
    for (const { message } of found) {
      const link = document.createElement("a");
      link.href = message.link;
      link.textContent = message.title;
      const item = document.createElement("li");
      item.append(link);
      list.append(item);
    }
    box.append(title, list);
    place.before(box);
  };

  document.addEventListener("DOMContentLoaded", () => {
    const query = new URLSearchParams(location.search).get("q");
    if (query) show(ranked(query, globalThis.CPAAS_MESSAGES ?? []));
  });
})();
