// @ts-check
// How the elements look. Every colour can be set from outside by `--cite-*`; light or dark follows `color-scheme`.

/** @param {string} css */
function sheet(css) {
  const made = new CSSStyleSheet();
  made.replaceSync(css);
  return made;
}

const THEME = sheet(`
:host {
  --ink: var(--cite-ink, light-dark(#1d2421, #e8edea));
  --faint: var(--cite-faint, light-dark(#5b6660, #a3aea8));
  --line: var(--cite-line, light-dark(#d8dedb, #3a4540));
  --paper: var(--cite-paper, light-dark(#fff, #1b211f));
  --soft: var(--cite-soft, light-dark(#f4f6f5, #252d2a));
  --accent: var(--cite-accent, light-dark(#1f6f4f, #7fd3ab));
  --good: var(--cite-good, light-dark(#1f6f4f, #7fd3ab));
  --good-soft: var(--cite-good-soft, light-dark(#dff1e7, #1d4032));
  --warn: var(--cite-warn, light-dark(#7a5200, #f0c46a));
  --warn-soft: var(--cite-warn-soft, light-dark(#fdeecb, #4a3910));
  --bad: var(--cite-bad, light-dark(#b3261e, #ff9c94));
  --bad-soft: var(--cite-bad-soft, light-dark(#fde3e0, #562622));
  --on-bad: var(--cite-on-bad, light-dark(#fff, #2b0906));
}
[hidden] { display: none !important }
.unseen { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
a { color: var(--accent); text-underline-offset: .15em }
/* A verdict has its sign and its shape as well as its colour. */
.verified { --tone: var(--good); --tone-soft: var(--good-soft) }
.partial { --tone: var(--warn); --tone-soft: var(--warn-soft) }
.altered, .missed { --tone: var(--bad); --tone-soft: var(--bad-soft) }
.pending, .skipped { --tone: var(--faint); --tone-soft: var(--soft) }
.chip { display: inline-block; box-sizing: border-box; border: 1.5px solid transparent; border-radius: .3em; padding: .08em .16em; background: none; color: var(--tone);
  font: 650 .74em/1.05 system-ui, sans-serif; font-variant-numeric: tabular-nums; white-space: nowrap; text-decoration: none; text-align: center }
.chip .sign { display: inline-block; min-width: 1em; margin-inline-start: .1em }
.chip.partial { border-color: var(--tone); border-radius: 1em; background: var(--tone-soft) }
.chip.altered, .chip.missed { background: var(--tone); border-color: var(--tone); color: var(--on-bad) }
.chip.missed { border-radius: 1em }
.chip.pending { border: 1.5px dashed var(--tone) }
.chip.skipped { border-color: var(--line); background: var(--soft) }
@media (forced-colors: active) { .chip { border-color: currentColor; forced-color-adjust: auto } .chip.altered, .chip.missed { border-width: 3px } }
`);

const MARKER = sheet(`
:host { position: relative }
button { position: relative; margin: 0; vertical-align: .18em; cursor: pointer }
button:disabled { cursor: progress }
button:hover:enabled, button[aria-expanded=true] { border-color: var(--tone); background: var(--tone-soft) }
button.altered:hover, button.missed:hover, button[aria-expanded=true]:is(.altered, .missed) { background: var(--tone); box-shadow: 0 0 0 2px var(--tone-soft) }
/* Small to read, large to hit. */
button::after { content: ""; position: absolute; inset: -.55em -.3em }
@media (pointer: coarse) { button::after { inset: -1em -.6em } }
`);

const CARD = sheet(`
:host { box-sizing: border-box; margin: .4rem 0; padding: 0; width: max-content; max-width: min(26rem, 100vw - 1rem);
  max-height: min(34rem, 85dvh); overflow: auto; overscroll-behavior: contain; border: 1px solid var(--line); border-radius: .8rem;
  background: var(--paper); color: var(--ink); box-shadow: 0 .6rem 2.2rem light-dark(#0003, #000a);
  font: 400 .92rem/1.5 var(--cite-font, system-ui, sans-serif); font-variant: normal; letter-spacing: normal; word-spacing: normal;
  text-align: start; text-indent: 0; text-transform: none; white-space: normal; overflow-wrap: anywhere; cursor: auto; outline: none }
:host(:popover-open) { position: fixed; inset: auto; position-area: block-end span-inline-end;
  position-try-fallbacks: flip-block, flip-inline, flip-block flip-inline, block-end, block-start; transition: opacity .12s }
@starting-style { :host(:popover-open) { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { :host(:popover-open) { transition: none } }
@supports not (position-area: block-end) { :host(:popover-open) { inset: auto 0 0; margin: 0 auto 1rem } }
@media (max-width: 34rem) {
  :host(:popover-open) { position-area: none; inset: auto 0 0; margin: 0; width: auto; max-width: none; max-height: 75dvh;
    border-width: 1px 0 0; border-radius: 1rem 1rem 0 0; padding-block-end: env(safe-area-inset-bottom) }
}
section + section { border-block-start: 1px solid var(--line) }
header { display: flex; gap: .5rem; align-items: center; padding: .55rem .5rem .55rem .9rem; background: var(--tone-soft); color: var(--tone) }
:host(:dir(rtl)) header { padding: .55rem .9rem .55rem .5rem }
header .status { flex: 1; margin: 0; font-weight: 650 }
header .sign { display: inline-block; min-width: 1.3em; font-weight: 800 }
section.altered header, section.missed header { background: var(--bad); color: var(--on-bad) }
.body { padding: .7rem .9rem .9rem; display: grid; gap: .55rem }
.body > * { margin: 0 }
.means { color: var(--faint) }
.source { font-weight: 600 }
.source .page { font-weight: 400; color: var(--faint); white-space: nowrap }
.label { display: block; font: .8rem/1.5 var(--cite-font, system-ui, sans-serif); color: var(--faint) }
blockquote { padding-inline-start: .7rem; border-inline-start: 3px solid var(--tone); font-family: var(--cite-quote-font, Georgia, serif); font-size: 1rem }
blockquote p { margin: 0 }
blockquote p + .label { margin-block-start: .4rem }
del, ins { padding: 0 .15em; border-radius: .2em; text-decoration-thickness: 1.5px; box-decoration-break: clone }
del { background: var(--bad-soft); color: var(--bad) }
ins { background: var(--good-soft); color: var(--good); font-weight: 650; text-decoration: none }
img { display: block; max-width: 100%; height: auto; max-height: 14rem; object-fit: contain; object-position: start; border: 1px solid var(--line); border-radius: .4rem; background: #fff }
.note { font-size: .85rem; color: var(--faint) }
.altered .reason, .missed .reason { color: var(--bad) }
ul { padding-inline-start: 1.1rem }
.actions { display: flex; flex-wrap: wrap; gap: .4rem }
button, .actions a { font: inherit; font-size: .85rem; color: inherit; background: var(--soft); border: 1px solid var(--line); border-radius: .5rem;
  padding: .3rem .65rem; min-height: 2rem; box-sizing: border-box; cursor: pointer; text-decoration: none }
button:hover, .actions a:hover { border-color: var(--accent) }
.actions .open { background: var(--accent); border-color: var(--accent); color: var(--paper); font-weight: 600 }
header button { background: none; border-color: transparent; min-width: 2rem; padding: 0 }
header :focus-visible { outline-color: currentColor }
`);

const TINTS = /** @type {[string, string][]} */ ([["good", "--good"], ["warn", "--warn"], ["bad", "--bad"], ["none", "--faint"]]);
const HIGHLIGHTS = TINTS.map(
  ([tint, colour]) => `
::highlight(cite-${tint}) { background-color: color-mix(in srgb, var(${colour}) 24%, transparent) }
::highlight(cite-${tint}-guess) { background-color: color-mix(in srgb, var(${colour}) 9%, transparent);
  text-decoration: underline dashed 2px var(${colour}); text-underline-offset: .2em }`,
).join("");

const ANSWER = sheet(`
:host { display: block; overflow-wrap: anywhere }
.text > :first-child { margin-block-start: 0 }
.text > :last-child { margin-block-end: 0 }
p, ul, ol, blockquote, pre, .table { margin: 0 0 .8em }
li > p, li > ul, li > ol { margin-block-end: .3em }
ul, ol { padding-inline-start: 1.6em }
h1, h2, h3, h4, h5, h6 { margin: 1.3em 0 .5em; line-height: 1.25; text-wrap: balance }
h1 { font-size: 1.45em } h2 { font-size: 1.25em } h3 { font-size: 1.1em } h4, h5, h6 { font-size: 1em }
blockquote { margin-inline: 0; padding-inline-start: 1em; border-inline-start: 3px solid var(--line); color: var(--faint) }
hr { border: 0; border-block-start: 1px solid var(--line); margin: 1.5em 0 }
code { font: .9em/1.45 ui-monospace, monospace; background: var(--soft); border-radius: .3em; padding: .1em .3em }
pre { overflow: auto; background: var(--soft); border: 1px solid var(--line); border-radius: .6em; padding: .8em 1em; tab-size: 4 }
pre code { background: none; padding: 0; overflow-wrap: normal }
.table { overflow: auto }
table { border-collapse: collapse; font-size: .95em; overflow-wrap: normal }
th, td { border-block-end: 1px solid var(--line); padding: .4em .8em .4em 0; text-align: start; vertical-align: top }
th { font-weight: 650; border-block-end-width: 2px }
.center { text-align: center } .end { text-align: end }
.problem { margin: .8em 0 0; padding: .6em 1em; border: 2px solid var(--bad); border-radius: .6em; background: var(--bad-soft); color: var(--bad) }
::highlight(cite-alarm) { text-decoration: underline wavy 1.5px var(--bad); text-underline-offset: .22em }
::highlight(cite-alarm-guess) { text-decoration: underline dashed 1.5px var(--bad); text-underline-offset: .22em }
::highlight(cite-uncited) { text-decoration: underline dotted 2px var(--warn); text-underline-offset: .22em;
  background-color: color-mix(in srgb, var(--warn) 12%, transparent) }
${HIGHLIGHTS}
`);

const SOURCES = sheet(`
:host { display: block; margin-block-start: 1.2em; font-size: .92em; overflow-wrap: anywhere }
h2 { font-size: 1em; margin: 0 0 .6em }
ul { list-style: none; margin: 0; padding: 0 }
.group { border: 1px solid var(--line); border-inline-start: 4px solid var(--tone); border-radius: .6em; padding: .6em .9em; margin: 0 0 .6em }
.group.altered, .group.missed { border-color: var(--bad) }
.name { margin: 0 0 .3em; font-weight: 600 }
.name .times { font-weight: 400; color: var(--faint) }
.entry { padding: .35em 0; border-block-start: 1px solid var(--line); scroll-margin: 5rem }
.entry:first-child { border: 0 }
.entry:focus { outline: 2px solid var(--accent); outline-offset: 2px }
.entry p { margin: 0; display: inline }
.entry .word { color: var(--tone); font-weight: 650 }
.entry .where, .reason { color: var(--faint) }
.entry q { font-family: var(--cite-quote-font, Georgia, serif) }
.entry button { cursor: pointer; position: relative; margin-inline-end: .3em; vertical-align: .1em }
.entry button.verified, .entry button.skipped { border-color: var(--line) }
.entry button::after { content: ""; position: absolute; inset: -.5em -.3em }
.reason { display: block }
`);

const SUMMARY = sheet(`
:host { display: block; margin-block-end: .6em; font-size: .9em }
ul { display: flex; flex-wrap: wrap; gap: .15em .3em; list-style: none; margin: 0; padding: 0 }
li { color: var(--tone) }
li:not(:last-child)::after { content: " ·"; color: var(--faint) }
.altered, .missed { font-weight: 700 }
`);

/** The style sheets of each element. */
export const STYLES = {
  answer: [THEME, ANSWER],
  card: [THEME, CARD],
  marker: [THEME, MARKER],
  sources: [THEME, SOURCES],
  summary: [THEME, SUMMARY],
};
