// What the hook gives in one component that gets every input in turn. Equal records among the inputs are one object.
import { createElement, useState } from "react";
import { renderToString } from "react-dom/server";
import { useCitations, useDeepCitationAgUI } from "citewire/react";

const records = new Map();
const given = JSON.parse(process.argv[2], (name, value) => {
  if (name !== "m") return value;
  const text = JSON.stringify(value);
  return records.get(text) ?? (records.set(text, value), value);
});
const [seen, complaints] = [[], []];
console.error = (...words) => complaints.push(words.join(" "));
function Probe() {
  const [at, goTo] = useState(0);
  seen.push(useCitations(given[at]));
  if (at + 1 < given.length) goTo(at + 1);
  return null;
}
renderToString(createElement(Probe));
const same = seen.map((one) => seen.indexOf(one));
console.log(JSON.stringify({ seen, same, complaints, alias: useDeepCitationAgUI === useCitations }));
