"use strict";
// Shows what /csdf-edge/v1/shown answers: elements as [tag, attributes, children], all made by the
// server. Nothing is parsed as HTML: text becomes text nodes, and only these tags and attributes
// are taken. Elements that stay are changed in place, so that a selection or the focus survives.

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "path", "rect", "line", "text", "title"]);
const TAGS = new Set([
  ...DRAWN, "main", "section", "div", "span", "p", "h1", "h2", "ul", "li", "dl", "dt", "dd",
  "table", "thead", "tbody", "tr", "th", "td",
]);
const ATTRIBUTES = new Set([
  "class", "role", "aria-label", "aria-hidden", "tabindex", "scope", "viewBox", "width", "height",
  "x", "y", "x1", "x2", "y1", "y2", "rx", "d",
]);

const main = document.getElementById("shown");
const status = document.getElementById("status");
const ask = document.getElementById("ask");
const input = document.getElementById("token");
let token = sessionStorage.getItem("csdf-edge-token") || "";

function isLike(node, tag) {
  if (!node) return false;
  return tag === null ? node.nodeType === Node.TEXT_NODE : node.localName === tag;
}

function put(parent, children) {
  children.forEach((child, index) => {
    const isText = typeof child === "string";
    const tag = isText ? null : child[0];
    if (!isText && !TAGS.has(tag)) return;
    let node = parent.childNodes[index];
    if (!isLike(node, tag)) {
      const made = isText ? document.createTextNode("")
        : DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
      if (node) parent.replaceChild(made, node); else parent.appendChild(made);
      node = made;
    }
    if (isText) {
      if (node.data !== child) node.data = child;
    } else {
      dress(node, child[1]);
      put(node, child[2]);
    }
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

function dress(node, attributes) {
  for (const name of node.getAttributeNames()) {
    if (name !== "id" && !(name in attributes)) node.removeAttribute(name);
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (ATTRIBUTES.has(name) && node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
}

function say(text, isStale) {
  if (status.textContent !== text) status.textContent = text;
  main.classList.toggle("stale", isStale);
}

async function refresh() {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch("/csdf-edge/v1/shown", {
    headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401) {
    sessionStorage.removeItem("csdf-edge-token");
    say(token ? "The server does not take this token." : "A token is needed.", true);
    token = "";
    ask.hidden = false;
    main.replaceChildren();
    input.focus();
    return false;
  }
  if (!answer.ok) throw new Error("the server answers with status " + answer.status);
  const [, , children] = await answer.json();
  put(main, children);
  say("live", false);
  return true;
}

async function watch() {
  let goesOn = true;
  if (!document.hidden) {
    try {
      goesOn = await refresh();
    } catch (error) {
      say("The server does not answer; trying again each second.", true);
    }
  }
  if (goesOn) setTimeout(watch, EVERY_MS);
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  token = input.value;
  sessionStorage.setItem("csdf-edge-token", token);
  input.value = "";
  ask.hidden = true;
  watch();
});
watch();
