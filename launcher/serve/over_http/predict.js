"use strict";
// Sends a picture to /v1/predict/MODEL, and shows the annotated picture and the predictions that
// come back. Text becomes text nodes: nothing is parsed as HTML.

const ROWS = 100;
const LONGEST_JSON = 20000;

const $ = (id) => document.getElementById(id);
const [status, ask, input, trying, model] = ["status", "ask", "token", "trying", "model"].map($);
const [drop, file, picture, found, answer] = ["drop", "file", "picture", "found", "answer"].map($);
let token = sessionStorage.getItem("csdf-edge-token") || "";
let asked = 0;

function say(text, isError) {
  status.textContent = text;
  status.className = isError ? "mark-error" : "faint";
}

async function post(path, body) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const given = await fetch(path, {
    method: "POST", body, headers, cache: "no-store", credentials: "omit",
  });
  if (given.status === 401) {
    sessionStorage.removeItem("csdf-edge-token");
    say(token ? "The server does not take this token." : "A token is needed.", true);
    token = "";
    ask.hidden = false;
    trying.hidden = true;
    input.focus();
    return null;
  }
  const data = await given.json();
  if (!given.ok) throw new Error(data.error);
  return data;
}

async function begin() {
  try {
    const models = await post("/v2/repository/index");
    if (models === null) return;
    model.replaceChildren(...models.map(({ name }) => new Option(name, name)));
    trying.hidden = false;
    say(models.length ? "ready" : "No model is served now.", !models.length);
  } catch (error) {
    say("The server does not answer; load the page again.", true);
  }
}

function cell(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function row(tag, texts) {
  const made = document.createElement("tr");
  made.append(...texts.map((text) => cell(tag, text)));
  return made;
}

function table(predictions) {
  const one = (each) => each.name || "class " + each.class;
  const objects = predictions.objects || predictions.classes || [];
  const rows = objects.slice(0, ROWS).map((each) => [
    one(each),
    each.score === undefined ? (100 * each.share).toFixed(1) + " %" : each.score.toFixed(3),
    each.box ? each.box.map(Math.round).join(", ") : "",
  ]);
  if (objects.length > ROWS) rows.push([`and ${objects.length - ROWS} more`, "", ""]);
  if (!rows.length) rows.push(["nothing found", "", ""]);
  const what = predictions.kind === "semantic" ? "share" : "score";
  found.replaceChildren(
    row("th", ["class", what, predictions.objects ? "box" : ""]), ...rows.map((each) => row("td", each)),
  );
}

async function predict(body, as) {
  return post(`/v1/predict/${encodeURIComponent(model.value)}?as=${as}`, body);
}

async function send(body) {
  const own = ++asked;
  const began = performance.now();
  say("predicting", false);
  let data = null;
  try {
    data = await predict(body, "both").catch(() => predict(body, "json"));
  } catch (error) {
    if (own === asked) say(error.message, true);
    return;
  }
  if (own !== asked || data === null) return;
  const { picture: drawn, ...rest } = data;
  picture.hidden = !drawn;
  if (drawn) picture.src = drawn;
  found.hidden = !data.predictions;
  if (data.predictions) table(data.predictions);
  const text = JSON.stringify(rest, null, 1);
  $("json").textContent = text.length > LONGEST_JSON ? text.slice(0, LONGEST_JSON) + " …" : text;
  answer.hidden = false;
  say(`answered in ${Math.round(performance.now() - began)} ms`, false);
}

file.addEventListener("change", () => file.files.length && send(file.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) send(event.dataTransfer.files[0]);
  });
}
ask.addEventListener("submit", (event) => {
  event.preventDefault();
  token = input.value;
  sessionStorage.setItem("csdf-edge-token", token);
  input.value = "";
  ask.hidden = true;
  begin();
});
begin();
