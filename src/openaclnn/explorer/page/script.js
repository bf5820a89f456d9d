// The page: the form is made from the declarations, every change asks the server, the answer is drawn.

const $ = (id) => document.getElementById(id);
const LANGUAGES = { "c++": "C++", c: "C", python: "Python" };
const LEFT_OUT = "left out";
const SHOWN = 512; // elements of a tensor in a table
const UNFOLDED = 64; // elements of a tensor whose table is open
const FIELDS = ["dtype", "shape", "strides", "offset", "format", "values"]; // of a tensor
const state = { declared: null, operator: null, language: "c++", against: "", answer: null, verdict: null, answers: 0, files: {}, zh: false };

/** A sentence in the reader's language, with what stands in its places {0}, {1}. */
function say(text, ...parts) {
  const known = (state.zh && state.declared?.chinese[text]) || text;
  return known.replace(/\{(\d)\}/g, (here, place) => parts[place] ?? here);
}

/** An element with attributes and children; text stays text. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((each) => each != null));
  return element;
}

function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const options = (values, chosen) =>
  values.map((each) => {
    const [value, title] = Array.isArray(each) ? each : [each, each];
    return h("option", { value, selected: value === chosen }, title);
  });

function settle(what) {
  document.body.dataset.state = what;
  if (what === "ready") document.body.dataset.answers = ++state.answers;
}

// Requests: a newer one takes the place of an older.

const running = {};
async function ask(path, body, kind) {
  running[path.split("?")[0]]?.abort();
  const control = (running[path.split("?")[0]] = new AbortController());
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST", body, signal: control.signal,
    headers: body === undefined ? {} : { "Content-Type": kind },
  });
  const held = await answer.json();
  if (state.declared) Object.assign(state.declared.chinese, held.chinese);
  return answer.ok ? held : { problem: held.error, ...held };
}

const later = {};
function soon(name, what, wait = 140) {
  settle("busy");
  clearTimeout(later[name]);
  const mine = (later[name] = setTimeout(async () => {
    try {
      await what();
      if (later[name] === mine) settle("ready");
    } catch (error) {
      if (error.name === "AbortError" || later[name] !== mine) return;
      tell($(name === "call" ? "verdict" : "judged"), "wait", say("No answer"), [[say("what happened"), say("{0}: is the explorer still running?", error.message)]]);
      settle("ready");
    }
  }, wait));
}

// The form.

function chooseOperator(name, query = new URLSearchParams()) {
  state.operator = state.declared.operators.find((each) => each.python === name) ?? state.declared.operators[0];
  $("operator").value = state.operator.python;
  describe();
  fill(linked(query));
}

function describe() {
  const operator = state.operator;
  $("summary").textContent = say(operator.summary);
  $("formula").textContent = say(operator.formula);
  $("prototypes").textContent = operator.prototypes.map((each) => `${each};`).join("\n\n");
  $("sample").replaceChildren(...options(operator.samples.map((each, place) => [String(place), say(each.title)])));
  for (const option of $("product").options) {
    const title = say(state.declared.products.find((each) => each.tag === option.value).title);
    option.textContent = operator.products.includes(option.value) ? title : say("{0} (lacks the operator)", title);
  }
}

function fill(given) {
  state.against = "";
  const folded = state.operator.parameters.filter((each) => each.written && given[each.name] === LEFT_OUT);
  const fields = (parameters) => parameters.map((each) => field(each, given[each.name]));
  $("parameters").replaceChildren(...fields(state.operator.parameters.filter((each) => !folded.includes(each))));
  if (folded.length) {
    const title = say("Outputs, made for you: {0}", folded.map((each) => each.name).join(", "));
    $("parameters").append(h("details", { class: "outputs" }, h("summary", {}, title), h("div", {}, fields(folded))));
  }
  soon("call", askCall, 0);
}

function field(parameter, given) {
  const badges = [];
  if (parameter.written) badges.push(h("span", { class: "badge" }, say(parameter.read ? "in and out" : "out")));
  if (parameter.optional) badges.push(h("span", { class: "badge" }, say("optional")));
  const title = [parameter.name, h("span", { class: "soft" }, parameter.type), badges];
  const problem = h("p", { class: "problem", id: `problem-${parameter.name}`, hidden: true });
  const id = `parameter-${parameter.name}`;
  if (parameter.kind !== "tensor") return h("div", { class: "parameter number", id }, numberField(parameter, given, title), problem);
  const notes = [parameter.text, parameter.shape].filter(Boolean).map((each) => say(each)).join(say("; "));
  return h("fieldset", { class: "parameter", id }, h("legend", { class: "title" }, title), h("p", { class: "soft" }, notes), tensorFields(parameter, given), problem);
}

function input(parameter, name, label, attributes, className = "") {
  const shared = { id: `${parameter.name}-${name}`, "data-field": name, "aria-describedby": `problem-${parameter.name}` };
  const { tag = "input", choices, ...rest } = attributes;
  const element = h(tag, { ...shared, spellcheck: "false", ...rest }, choices ?? []);
  if (tag !== "select") element.value = rest.value ?? "";
  return h("label", { class: className }, label, element);
}

function tensorFields(parameter, given) {
  const held = given && given !== LEFT_OUT ? given : {};
  const modes = [["tensor", say("tensor")], ["null", "null"]];
  if (parameter.left_out) modes.unshift([LEFT_OUT, say(parameter.written ? "made for you" : "computed")]);
  const mode = given === LEFT_OUT ? LEFT_OUT : given ? "tensor" : "null";
  const known = parameter.dtypes.length ? parameter.dtypes : state.declared.dtypes;
  const dtypes = [...new Set([...known, ...state.declared.dtypes])];
  const first = state.operator.samples[0].arguments;
  const like = Object.values(first).find((each) => each?.shape !== undefined);
  const dtype = held.dtype ?? (parameter.dtypes.includes(like?.dtype) || !parameter.dtypes.length ? like?.dtype : parameter.dtypes[0]);
  const row = h("div", { class: "tensor" },
    input(parameter, "mode", say("given as"), { tag: "select", choices: options(modes, mode) }),
    input(parameter, "dtype", say("dtype"), { tag: "select", choices: options(dtypes, dtype) }),
    input(parameter, "shape", "shape", { value: held.shape ?? like?.shape ?? "", placeholder: say("one number") }, "shape"));
  const layout = [
    input(parameter, "strides", "strides", { value: held.strides, placeholder: say("row-major") }),
    input(parameter, "offset", say("offset"), { value: held.offset, placeholder: "0", inputmode: "numeric" }),
    input(parameter, "format", say("format"), { tag: "select", choices: options(state.declared.formats, held.format ?? "ND") }),
  ];
  if (parameter.read) layout.push(input(parameter, "values", say("values"), { tag: "textarea", rows: 2, value: held.values, placeholder: say("drawn from the seed") }, "wide"));
  const more = h("details", {}, h("summary", {}, say(parameter.read ? "Layout and values" : "Layout")), h("div", { class: "layout" }, layout));
  const show = () => {
    const chosen = row.querySelector("select").value === "tensor";
    row.classList.toggle("alone", !chosen);
    for (const each of row.querySelectorAll("label:not(:first-child)")) each.hidden = !chosen;
    more.hidden = !chosen;
  };
  row.querySelector("select").addEventListener("change", show);
  show();
  // Values belong to a shape: typing another one lets them be drawn.
  row.querySelector("[data-field=shape]").addEventListener("input", () => {
    const values = more.querySelector("[data-field=values]");
    if (values) values.value = "";
  });
  return [row, more];
}

function numberField(parameter, given, title) {
  const text = h("span", {}, h("span", { class: "title" }, title), h("span", { class: "soft note" }, say(parameter.text)));
  if (parameter.kind === "bool") {
    return h("label", {}, text, h("input", { type: "checkbox", id: `${parameter.name}-value`, "data-field": "value", checked: given === true }));
  }
  const label = input(parameter, "value", text, { value: given ?? "null", list: parameter.choices.length ? `${parameter.name}-choices` : null });
  if (parameter.choices.length) label.append(h("datalist", { id: `${parameter.name}-choices` }, options(parameter.choices)));
  return label;
}

function read(parameter) {
  const box = $(`parameter-${parameter.name}`);
  const get = (name) => box.querySelector(`[data-field="${name}"]`);
  if (parameter.kind !== "tensor") {
    const element = get("value");
    return element.type === "checkbox" ? element.checked : element.value;
  }
  const mode = get("mode").value;
  if (mode !== "tensor") return mode === "null" ? null : LEFT_OUT;
  return Object.fromEntries(FIELDS.filter(get).map((name) => [name, get(name).value]));
}

const given = () => Object.fromEntries(state.operator.parameters.map((each) => [each.name, read(each)]));

// The address holds the whole call: #operator/product?alpha=2&x.dtype=FLOAT&x.shape=2x3; a parameter that it does not name is the first sample's.

function addressOf(seed, held) {
  const query = new URLSearchParams(seed === "0" ? [] : [["seed", seed]]);
  for (const [name, value] of Object.entries(held)) {
    if (value === null || typeof value !== "object") {
      if (value !== LEFT_OUT || state.operator.samples[0].arguments[name] !== LEFT_OUT) query.set(name, value);
      continue;
    }
    for (const [key, text] of Object.entries(value)) {
      const plain = key === "format" ? text === "ND" : key !== "shape" && !text;
      if (!plain) query.set(`${name}.${key}`, text.trim().replace(/[,;\s]+/g, key === "values" ? " " : ","));
    }
  }
  return `#${state.operator.python}/${$("product").value}?${`${query}`.replaceAll("%2C", ",")}`;
}

function linked(query) {
  const first = state.operator.samples[0].arguments;
  return Object.fromEntries(state.operator.parameters.map(({ name, kind }) => {
    const text = query.get(name), fields = FIELDS.filter((key) => query.has(`${name}.${key}`));
    if (text !== null && kind === "tensor") return [name, text === LEFT_OUT ? text : null];
    if (text !== null) return [name, kind === "bool" ? text === "true" : text];
    if (!fields.length) return [name, first[name]];
    const dtype = first[name]?.dtype, shape = first[name]?.shape;
    return [name, { dtype, shape, ...Object.fromEntries(fields.map((key) => [key, query.get(`${name}.${key}`)])) }];
  }));
}

function follow() {
  const [, path, text] = /^#?([^?]*)\??(.*)$/s.exec(location.hash);
  const [operator, product] = path.split("/"), query = new URLSearchParams(text);
  if (state.declared.products.some((each) => each.tag === product)) $("product").value = product;
  $("seed").value = query.get("seed") ?? "0";
  chooseOperator(operator, query);
}

// A call and its answer.

async function askCall() {
  const seed = /^\d{1,15}$/.test($("seed").value.trim()) ? Number($("seed").value) : $("seed").value;
  const body = { operator: state.operator.name, product: $("product").value, seed, arguments: given() };
  history.replaceState(null, "", addressOf($("seed").value.trim(), body.arguments));
  const told = await ask("/api/call", JSON.stringify(body), "application/json");
  state.answer = told;
  mark(told);
  document.querySelector(".results").classList.toggle("stale", Boolean(told.problem));
  if (told.problem) {
    $("copy").disabled = true;
    tell($("verdict"), "wait", say("Not a call yet"), [["", say(told.problem)]]);
    return;
  }
  showVerdict(told);
  showChecks(told);
  showValues(told);
  showCode();
}

function mark(told) {
  for (const box of document.querySelectorAll(".parameter")) {
    const name = box.id.slice("parameter-".length);
    const here = told.parameter === name;
    box.classList.toggle("blamed", here && !told.problem);
    if (here) unfold(box);
    for (const each of box.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
    const problem = $(`problem-${name}`);
    problem.hidden = !(here && told.problem);
    if (problem.hidden) continue;
    problem.textContent = say(told.problem);
    const wrong = box.querySelector(`[data-field="${told.field}"]`) ?? box.querySelector("[data-field=value]");
    wrong?.setAttribute("aria-invalid", "true");
    unfold(wrong);
  }
}

function unfold(element) {
  for (let each = element?.closest("details"); each; each = each.parentElement.closest("details")) each.open = true;
}

function tell(box, kind, headline, rows) {
  box.hidden = false;
  box.className = `card verdict ${kind}`;
  const list = h("dl", {}, rows.map(([name, value, className]) => [name ? h("dt", {}, name) : null, h("dd", { class: className }, value)]));
  if (!rows.some(([name]) => name)) list.replaceChildren(...rows.map(([, value]) => h("dd", {}, value)));
  box.replaceChildren(h("p", { class: "headline" }, headline), list);
  if (box.id !== "verdict") return;
  $("pill").className = kind; // where the window is too narrow for both columns
  $("pill").textContent = headline.split(" ").slice(0, kind === "wait" ? 9 : 2).join(" ");
}

const shapeText = (shape) => (shape.length ? shape.join(" × ") : say("one number"));

function goTo(name) {
  const box = $(`parameter-${name}`);
  if (!box) return document.createTextNode(name);
  const go = () => {
    const fields = [...box.querySelectorAll("[data-field]")];
    (fields.find((each) => each.dataset.field === "shape" && each.offsetParent) ?? fields[0]).focus();
    box.scrollIntoView({ block: "center" });
  };
  return h("button", { type: "button", class: "link", onclick: go, title: say("Go to {0}", name) }, name);
}

function showVerdict(told) {
  if (told.status === 0) {
    const outputs = told.outputs.map((each) => [each.name, `${each.dtype}, ${shapeText(each.shape)}`]);
    tell($("verdict"), "good", `✓ ${told.status} ${told.name}`, outputs);
    return;
  }
  tell($("verdict"), "bad", `✗ ${told.status} ${told.name}`, [
    [say("rule"), told.rule ? `${told.row}: ${say(told.rule)}` : say("what the C type can hold")],
    [say("parameter"), goTo(told.parameter)],
    [say("expected"), say(told.expected)],
    [say("got"), say(told.got)],
    [say("fix"), say(told.fix), "fix"],
  ]);
}

function showChecks(told) {
  const marks = { passed: ["✓", "passed"], broken: ["✗", "broken"], "not reached": ["·", "unreached"] };
  const passed = told.checks.filter((each) => each.state === "passed").length;
  $("checks-count").textContent = say("{0} of {1} passed", passed, told.checks.length);
  $("checks").replaceChildren(...told.checks.map((each) => {
    const [mark, className] = marks[each.state];
    return h("li", { class: className, "aria-current": each.state === "broken" ? "true" : null },
      h("span", { class: "mark", "aria-hidden": "true" }, mark), h("span", { class: "row" }, each.row), h("span", {}, say(each.rule)),
      h("span", { class: "state" }, each.state === "broken" ? `${say("broken")}, ${each.status}` : say(each.state)));
  }));
}

// Values.

const DIGITS = { float16: 4, bfloat16: 3, float32: 7, float64: 12 };
function show(value, dtype) {
  if (typeof value === "string" || Number.isInteger(value)) return Object.is(value, -0) ? "-0" : String(value);
  return String(Number(value.toPrecision(DIGITS[dtype] ?? 9)));
}

const number = (value) => (typeof value === "number" ? value : { inf: Infinity, "-inf": -Infinity }[value] ?? Number(value));

function showValues(told) {
  if (!told.values) {
    $("values").replaceChildren(h("p", { class: "soft" }, say(told.no_values)));
    return;
  }
  const parts = [];
  const { inputs, outputs } = told.values;
  const out = outputs.find((each) => each.values.length > 1) ?? outputs[0]; // of several, one with something to see
  if (out?.values.length) parts.push(plotOf(out, inputs));
  const tables = (list) => h("div", { class: "tensors" }, list.map(tableOf));
  parts.push(tables(outputs));
  parts.push(h("details", {}, h("summary", {}, say("Inputs")), tables(inputs)));
  $("values").replaceChildren(...parts);
}

function tableOf(tensor) {
  const { shape, values, dtype, name } = tensor;
  const width = shape.length ? shape[shape.length - 1] : 1;
  const title = h("h3", {}, name, " ", h("span", { class: "soft" }, `${dtype}, ${shapeText(shape)}`));
  if (!values.length) return h("details", { open: true }, h("summary", {}, title), h("p", { class: "soft" }, say("no elements")));
  const columns = Math.min(width, 64);
  const rows = [];
  for (let start = 0; start < values.length && rows.length * columns < SHOWN; start += width) {
    const place = [];
    for (let axis = shape.length - 2, left = start / width; axis >= 0; axis--) {
      place.unshift(left % shape[axis]);
      left = Math.floor(left / shape[axis]);
    }
    const cells = values.slice(start, start + columns).map((each) => h("td", { class: number(each) < 0 ? "negative" : null }, show(each, dtype)));
    if (columns < width) cells.push(h("td", {}, "…"));
    rows.push(h("tr", {}, h("th", { scope: "row" }, place.length ? `[${place.join(", ")}]` : ""), cells));
  }
  const shown = rows.length * width < values.length || columns < width;
  const head = h("tr", {}, h("td"), Array.from({ length: columns }, (_, place) => h("th", { scope: "col" }, String(place))));
  return h("details", { open: values.length <= UNFOLDED }, h("summary", {}, title),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("Values of {0}", name) }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))),
    shown ? h("p", { class: "soft" }, say("the first of {0} elements", values.length)) : null);
}

function plotOf(out, inputs) {
  const alike = inputs.filter((each) => String(each.shape) === String(out.shape));
  if (!alike.some((each) => each.name === state.against)) state.against = "";
  const frame = h("figure");
  const draw = () => {
    const other = alike.find((each) => each.name === state.against);
    frame.replaceChildren(valuePlot(out, other));
  };
  draw();
  const choose = h("select", { id: "against", onchange: (event) => { state.against = event.target.value; draw(); } },
    options([["", say("position")], ...alike.map((each) => [each.name, each.name])], state.against));
  return h("div", { class: "grid" }, h("label", {}, say("{0} against", out.name), choose), frame);
}

/** Round numbers that cover an interval. */
function ticks(low, high, wanted = 5) {
  if (low === high) { const room = Math.abs(low) || 1; low -= room / 2; high += room / 2; }
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const marks = [];
  for (let at = Math.floor(low / step); at * step < high + step; at++) marks.push(Number((at * step).toPrecision(6)));
  return marks;
}

const short = (value) => (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3) ? value.toExponential(0).replace("e+", "e") : String(Number(value.toPrecision(4))));

/** A frame with axes: where numbers lie, and the element to draw into. */
function axes(width, height, xs, [from, to], ys, { label, x: xName = "", text = short } = {}) {
  const left = 52, right = 12, top = 12, bottom = xName ? 40 : 24;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const x = (value) => left + ((value - from) / (to - from)) * (width - left - right);
  const y = (value) => height - bottom - ((value - ys[0]) / (ys[ys.length - 1] - ys[0])) * (height - top - bottom);
  for (const at of ys) {
    svg.append(s("line", { class: "tick", x1: left, x2: width - right, y1: y(at), y2: y(at) }));
    svg.append(s("text", { x: left - 7, y: y(at) + 4, "text-anchor": "end" }, text(at)));
  }
  for (const at of xs) svg.append(s("text", { x: x(at), y: height - bottom + 16, "text-anchor": "middle" }, text(at)));
  if (xName) svg.append(s("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, xName));
  return { svg, x, y };
}

function valuePlot(out, other) {
  const all = out.values.map((each, place) => [other ? number(other.values[place]) : place, number(each)]);
  const points = all.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
  const against = other ? other.name : say("position");
  if (!points.length) return h("p", { class: "soft" }, say("No finite values to draw."));
  const lows = (place) => points.reduce((least, each) => Math.min(least, each[place]), Infinity);
  const highs = (place) => points.reduce((most, each) => Math.max(most, each[place]), -Infinity);
  const [least, most] = [lows(1), highs(1)];
  const label = say("{0} against {1}: {2} values from {3} to {4}", out.name, against, points.length, show(least, out.dtype), show(most, out.dtype));
  const last = out.values.length - 1;
  const places = ticks(0, Math.max(last, 1), 6).filter((at) => at <= last && Number.isInteger(at));
  const marks = other ? ticks(lows(0), highs(0), 6) : places;
  const ends = other ? [marks[0], marks[marks.length - 1]] : [-0.5, last + 0.5];
  const { svg, x, y } = axes(640, 230, marks, ends, ticks(Math.min(least, 0), Math.max(most, 0)), { label, x: against });
  const zero = y(0);
  svg.append(s("line", { class: "zero", x1: 52, x2: 628, y1: zero, y2: zero }));
  const radius = points.length > 400 ? 1.6 : points.length > 80 ? 2.4 : 3.6;
  for (const [at, value] of points) {
    const under = value < 0 ? " under" : "";
    if (!other && points.length <= 400) svg.append(s("line", { class: `stem${under}`, x1: x(at), x2: x(at), y1: zero, y2: y(value) }));
    svg.append(s("circle", { class: `dot${under}`, cx: x(at), cy: y(value), r: radius }, s("title", {}, `${against} ${short(at)}: ${show(value, out.dtype)}`)));
  }
  const missing = all.length - points.length;
  return missing ? h("div", {}, svg, h("p", { class: "soft" }, say("{0} of {1} are not finite, and not drawn", missing, all.length))) : svg;
}

// Code.

function showCode() {
  const code = state.answer?.code?.[state.language];
  $("code").textContent = code?.text ?? code?.why ?? "";
  $("copy").disabled = !code?.text;
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", { class: "aside" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  const title = button.textContent;
  if (title === say("Copied")) return;
  button.textContent = say("Copied");
  setTimeout(() => (button.textContent = title), 1500);
}

// Verdicts on files.

const NAMES = {
  cosine_similarity: "cosine similarity", max_absolute_error: "maximum absolute error",
  accumulated_relative_error: "accumulated relative error", relative_euclidean_distance: "relative Euclidean distance",
  mean_absolute_error: "mean absolute error", root_mean_square_error: "root mean square error",
  max_relative_error: "maximum relative error", mean_relative_error: "mean relative error", matched: "matched share", max_ulp: "maximum ULP",
};

function take(role, file) {
  state.files[role] = file;
  $(`name-${role}`).textContent = say("{0}, {1} bytes", file.name, file.size.toLocaleString("en"));
}

function dropped(event, zone) {
  event.preventDefault();
  for (const each of document.querySelectorAll(".drop")) each.classList.remove("over");
  const files = [...event.dataTransfer.files];
  if (files.length === 1) {
    take(zone ?? (state.files.actual && !state.files.golden ? "golden" : "actual"), files[0]);
  } else if (files.length > 1) {
    const golden = files.slice(0, 2).findIndex((each) => /golden|expected|reference/i.test(each.name));
    const [actual, other] = golden === 0 ? [files[1], files[0]] : files;
    take("actual", actual);
    take("golden", other);
  }
  compare();
}

function compare() {
  const { actual, golden } = state.files;
  if (!actual || !golden) return;
  soon("compare", async () => {
    const query = new URLSearchParams([["name", actual.name], ["name", golden.name], ["first", actual.size], ["standard", $("standard").value]]);
    if ($("raw").value) query.append("dtype", $("raw").value);
    const told = await ask(`/api/compare?${query}`, new Blob([actual, golden]), "application/octet-stream");
    state.verdict = told;
    showJudged(told);
  }, 0);
}

function showJudged(told) {
  for (const name of ["picture", "figures"]) $(name).hidden = true;
  if (told.problem) {
    tell($("judged"), "wait", say("No verdict"), [["", say(told.problem)]]);
    return;
  }
  const rows = [[say("standard"), told.standard], [say("output"), `${told.dtype}, ${shapeText(told.shape)}`]];
  if (told.figures) rows.push([say("bad elements"), say("{0} of {1}", told.bad.toLocaleString("en"), told.count.toLocaleString("en"))]);
  const reasons = told.reasons.map((each) => [say("why"), say(each)]);
  tell($("judged"), told.passed ? "good" : "bad", told.passed ? `✓ ${say("passed")}` : `✗ ${say("failed")}`, [...rows, ...reasons]);
  if (told.picture) showPicture(told);
  if (told.figures) showFigures(told);
}

function showFigures(told) {
  const value = (each) => (typeof each === "number" ? String(Number(each.toPrecision(6))) : String(each));
  const table = (head, rows, label) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: "figures" }, h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each) => h("td", {}, value(each))))))));
  const figures = Object.entries(told.figures).map(([name, each]) => [say(NAMES[name] ?? name), each]);
  const bad = told.first_bad.map((each) => [`[${each.position.join(", ")}]`, each.actual, each.golden, each.error, each.ulp]);
  const part = (title, ...what) => h("div", {}, h("h2", {}, title), table(...what, title));
  $("figures").replaceChildren(h("div", { class: "pair" }, part(say("Figures"), [say("figure"), say("value")], figures),
    ...(bad.length ? [part(say("First bad elements"), [say("position"), say("actual"), say("golden"), say("error"), "ULP"], bad)] : [])));
  $("figures").hidden = false;
}

function showPicture(told) {
  const figure = (title, drawing) => h("figure", {}, h("h3", {}, title), drawing);
  $("picture").replaceChildren(h("div", { class: "pictures" },
    figure(say("Error against magnitude"), errorPlot(told.picture)),
    figure(say("ULP of the output’s dtype"), histogram(told.ulp_histogram)),
    figure(say("Where the bad elements lie"), badMap(told.picture))));
  $("picture").hidden = false;
}

function errorPlot(picture) {
  const points = [...picture.good, ...picture.bad];
  if (!points.length) return h("p", { class: "soft" }, say("No error at all."));
  const log = (pairs) => pairs.filter(([x, y]) => x > 0 && y > 0).map((pair) => pair.map(Math.log10));
  const every = log([...points, ...picture.allowed]);
  const span = (place) => {
    const values = every.map((each) => each[place]);
    const low = Math.floor(Math.min(...values)), high = Math.max(Math.ceil(Math.max(...values)), low + 1);
    const step = Math.max(1, Math.ceil((high - low) / 5));
    return Array.from({ length: Math.ceil((high - low) / step) + 1 }, (_, at) => low + at * step);
  };
  const label = say("Errors of {0} elements against the size of their golden values; {1} are bad", points.length, picture.bad.length);
  const across = span(0);
  const { svg, x, y } = axes(340, 260, across, [across[0], across[across.length - 1]], span(1), { label, x: say("size of the golden value"), text: (at) => `1e${at}` });
  for (const [name, className] of [["good", "good"], ["bad", "wrong"]]) {
    for (const [a, b] of log(picture[name])) svg.append(s("circle", { class: className, cx: x(a), cy: y(b), r: 2 }));
  }
  const line = log(picture.allowed).map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
  if (line) svg.append(s("polyline", { class: "allowed", points: line }, s("title", {}, say("allowed"))));
  return svg;
}

const SPECIAL = "NaN/Inf ", DIFFER = "NaN/Inf differ"; // the last two bars: elements without an error in ULP

function histogram(counts) {
  const entries = Object.entries(counts);
  const most = Math.max(...entries.map(([, count]) => count), 1);
  const label = say("Elements by ULP: {0}", entries.filter(([, count]) => count).map(([name, count]) => `${say(name)}: ${count}`).join(", "));
  const svg = s("svg", { viewBox: "0 0 340 260", role: "img", "aria-label": label });
  const step = 320 / entries.length;
  entries.forEach(([name, count], place) => {
    const high = count ? 8 + (Math.log1p(count) / Math.log1p(most)) * 180 : 0;
    const left = 10 + place * step;
    svg.append(s("rect", { class: name === DIFFER ? "wrong" : "bar-fill", x: left + 3, width: step - 6, y: 225 - high, height: high, rx: 2 }));
    if (count) svg.append(s("text", { x: left + step / 2, y: 218 - high, "text-anchor": "middle" }, compact(count)));
    svg.append(s("text", { x: left + step / 2, y: 242, "text-anchor": "middle" }, name.startsWith(SPECIAL) ? say(name.slice(SPECIAL.length)) : name.replace("<= ", "≤")));
  });
  svg.append(s("line", { class: "axis", x1: 10, x2: 330, y1: 225, y2: 225 }));
  svg.append(s("text", { x: 330 - step, y: 257, "text-anchor": "middle" }, "NaN, Inf"));
  return svg;
}

const compact = (count) => new Intl.NumberFormat("en", { notation: "compact" }).format(count);

function badMap(picture) {
  const rows = picture.map.length, columns = picture.map[0].length;
  const most = Math.max(...picture.map.flat().filter((each) => each !== null), 0);
  const label = most ? say("A map of {0} rows and {1} columns of elements; up to {2} % of a cell are bad", picture.rows, picture.columns, Number((most * 100).toPrecision(3))) : say("no bad elements");
  const svg = s("svg", { viewBox: "0 0 340 260", role: "img", "aria-label": label });
  svg.append(s("rect", { class: "field", x: 26, y: 12, width: 302, height: 208 }));
  picture.map.forEach((row, high) => row.forEach((share, wide) => {
    if (!share) return;
    svg.append(s("rect", { class: "cell", x: 26 + (wide * 302) / columns, y: 12 + (high * 208) / rows, width: 302 / columns, height: 208 / rows,
      "fill-opacity": 0.15 + 0.85 * (share / most) }));
  }));
  if (!most) svg.append(s("text", { x: 177, y: 120, "text-anchor": "middle" }, say("no bad elements")));
  svg.append(s("text", { x: 177, y: 240, "text-anchor": "middle" }, `${say(picture.folded ? "folded" : "last axis")}, ${picture.columns.toLocaleString("en")}`));
  svg.append(s("text", { x: 0, y: 0, transform: "translate(16 116) rotate(-90)", "text-anchor": "middle" }, `${say("axes before it")}, ${picture.rows.toLocaleString("en")}`));
  return svg;
}

// Tabs, as the keyboard knows them: arrows, Home and End.

function tabs(list, chosen) {
  const all = () => [...list.querySelectorAll("[role=tab]")];
  const choose = (tab, focus) => {
    for (const each of all()) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
    }
    if (focus) tab.focus();
    chosen(tab);
  };
  list.addEventListener("click", (event) => event.target.closest("[role=tab]") && choose(event.target.closest("[role=tab]")));
  list.addEventListener("keydown", (event) => {
    const every = all(), place = every.indexOf(document.activeElement);
    const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: every.length - 1 }[event.key];
    if (next === undefined || place < 0) return;
    event.preventDefault();
    choose(every[(next + every.length) % every.length], true);
  });
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  kept("theme", theme);
}

/** Offer the operators with all words of a text in their names, family or summary, and choose the first if the chosen one is not among them.
Names may come as PyTorch and C write them. */
function find(text) {
  const around = /^((torch|nn|functional|f|ops|aten|openaclnn)\.)+|getworkspacesize$/g;
  const words = text.toLowerCase().split(/\s+/).map((word) => word.replace(around, ""));
  const translated = state.declared.chinese; // found in both languages
  const texts = ({ name, python, family, summary }) => [name, python, family, summary, translated[family], translated[summary]].join(" ").toLowerCase();
  const fits = (operator) => words.every((word) => texts(operator).includes(word));
  const offered = new Set(state.declared.operators.filter(fits).map((each) => each.python));
  for (const group of $("operator").children) {
    for (const option of group.children) option.hidden = option.disabled = !offered.has(option.value);
    group.hidden = [...group.children].every((option) => option.hidden);
  }
  $("find").setAttribute("aria-invalid", String(!offered.size));
  $("found").textContent = say("{0} of {1} operators", offered.size, state.declared.operators.length);
  if (state.operator && offered.size && !offered.has($("operator").value)) chooseOperator(offered.values().next().value);
}

/** What the page itself says, as it came: its texts and the attributes that are read or shown. */
function staticTexts() {
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.data.trim()) texts.push([walker.currentNode, "data", walker.currentNode.data]);
  for (const name of ["aria-label", "placeholder"]) {
    for (const element of document.querySelectorAll(`[${name}]`)) texts.push([element.getAttributeNode(name), "value", element.getAttribute(name)]);
  }
  return texts.filter(([node]) => node.parentElement?.id !== "speech");
}

/** Turn the whole page to a language; what was typed stays. */
function speak(zh, texts) {
  state.zh = zh;
  document.documentElement.lang = zh ? "zh-CN" : "en";
  $("speech").textContent = zh ? "EN" : "中文";
  $("speech").lang = zh ? "en" : "zh-CN";
  for (const [node, part, text] of texts) node[part] = text.replace(text.trim(), say(text.trim()));
  for (const group of $("operator").children) group.label = say(group.dataset.family);
  for (const role of ["actual", "golden"]) if (state.files[role]) take(role, state.files[role]);
  $("raw").options[0].textContent = say("as the file says");
  find($("find").value);
  if (state.verdict) showJudged(state.verdict);
  if (!state.operator) return;
  const held = given(), sample = $("sample").value;
  describe();
  $("sample").value = sample;
  fill(held);
}

/** The reader's choice of before, where the browser keeps one. */
const kept = (name, value) => {
  try {
    if (value) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch { return null; }
};

async function start() {
  const texts = staticTexts();
  setTheme(kept("theme"));
  $("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    setTheme(now === "dark" ? "light" : "dark");
  });
  tabs(document.querySelector(".top [role=tablist]"), (tab) => {
    for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== tab.getAttribute("aria-controls");
    $("pill").hidden = $("view-call").hidden;
  });
  $("languages").append(...Object.entries(LANGUAGES).map(([key, title], place) => h("button", {
    type: "button", role: "tab", id: `language-${key}`, "data-language": key, "aria-controls": "code", "aria-selected": String(!place), tabindex: place ? -1 : 0,
  }, title)));
  tabs($("languages"), (tab) => { state.language = tab.dataset.language; showCode(); });
  $("copy").addEventListener("click", () => copy($("copy"), $("code").textContent));
  $("link").addEventListener("click", () => copy($("link"), location.href));

  state.declared = await ask("/api/declared");
  const { operators, products, standards, dtypes, raw, version } = state.declared;
  $("version").textContent = version;
  for (const family of new Set(operators.map((each) => each.family))) {
    const members = operators.filter((each) => each.family === family);
    $("operator").append(h("optgroup", { label: family, "data-family": family }, ...options(members.map((each) => [each.python, each.name]))));
  }
  $("find").addEventListener("input", (event) => find(event.target.value));
  $("product").append(...options(products.map((each) => [each.tag, each.title])));
  $("standard").append(...options(standards));
  $("raw").append(...options([["", "as the file says"], ...dtypes]));
  $("kinds").textContent = [".npy", ".npz", ".safetensors", ...raw].join(", ");

  $("operator").addEventListener("change", (event) => chooseOperator(event.target.value));
  $("sample").addEventListener("change", (event) => fill(state.operator.samples[Number(event.target.value)].arguments));
  $("form").addEventListener("submit", (event) => event.preventDefault());
  // Text counts as it is typed, choices when they are made.
  for (const kind of ["input", "change"]) {
    $("form").addEventListener(kind, (event) => {
      const choice = event.target.matches("select, [type=checkbox]");
      if (choice === (kind === "change") && !["find", "operator", "sample"].includes(event.target.id)) soon("call", askCall);
    });
  }
  for (const role of ["actual", "golden"]) {
    const zone = $(`drop-${role}`);
    $(`file-${role}`).addEventListener("change", (event) => { if (event.target.files[0]) { take(role, event.target.files[0]); compare(); } });
    zone.addEventListener("dragover", () => zone.classList.add("over"));
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  }
  $("view-compare").addEventListener("dragover", (event) => event.preventDefault());
  $("view-compare").addEventListener("drop", (event) => dropped(event, event.target.closest(".drop")?.id.slice("drop-".length)));
  for (const name of ["standard", "raw"]) $(name).addEventListener("change", compare);

  const language = kept("language") ?? navigator.language;
  speak(language.toLowerCase().startsWith("zh"), texts);
  $("speech").addEventListener("click", () => { speak(!state.zh, texts); kept("language", document.documentElement.lang); });
  addEventListener("hashchange", follow);
  follow();
}

start();
