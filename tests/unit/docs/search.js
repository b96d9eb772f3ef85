// Runs the search page's script for many queries without a browser: reads {script, messages, queries}, prints the links.
"use strict";

const fs = require("node:fs");
const vm = require("node:vm");

const { script, messages, queries } = JSON.parse(fs.readFileSync(0, "utf-8"));
const program = new vm.Script(fs.readFileSync(script, "utf-8"));

const element = () => ({ children: [], append(...nodes) { this.children.push(...nodes); } });
const linksOf = (node) => [...(node.href ? [node.href] : []), ...node.children.flatMap(linksOf)];

const found = queries.map((query) => {
  const shown = [];
  let start = () => {};
  program.runInNewContext({
    CPAAS_MESSAGES: messages,
    URLSearchParams,
    location: { search: `?q=${encodeURIComponent(query)}` },
    document: {
      addEventListener: (_, listener) => { start = listener; },
      createElement: element,
      getElementById: () => ({ before: (box) => shown.push(...linksOf(box)) }),
    },
  });
  start();
  return shown;
});
process.stdout.write(JSON.stringify(found));
