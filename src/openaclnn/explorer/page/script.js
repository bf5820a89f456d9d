// The page: the form is made from the declarations, every change asks the server, the answer is drawn.

const $ = (id) => document.getElementById(id);
const LANGUAGES = { "c++": "C++", c: "C", python: "Python" };
const LEFT_OUT = "left out";
const SHOWN = 512; // elements of a tensor in a table
const state = { declared: null, operator: null, language: "c++", against: "", answer: null, answers: 0, files: {} };

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
      tell($(name === "call" ? "verdict" : "judged"), "wait", "No answer", [["what happened", `${error.message}: is the explorer still running?`]]);
      settle("ready");
    }
  }, wait));
}

// The form.

function chooseOperator(name) {
  state.operator = state.declared.operators.find((each) => each.python === name) ?? state.declared.operators[0];
  const operator = state.operator;
  $("operator").value = operator.python;
  $("summary").textContent = operator.summary;
  $("formula").textContent = operator.formula;
  $("prototypes").textContent = operator.prototypes.map((each) => `${each};`).join("\n\n");
  $("sample").replaceChildren(...options(operator.samples.map((each, place) => [String(place), each.title])));
  for (const option of $("product").options) {
    const title = state.declared.products.find((each) => each.tag === option.value).title;
    option.textContent = operator.products.includes(option.value) ? title : `${title} (lacks the operator)`;
  }
  fill(operator.samples[0].arguments);
}

function fill(given) {
  state.against = "";
  $("parameters").replaceChildren(...state.operator.parameters.map((each) => field(each, given[each.name])));
  soon("call", askCall, 0);
}

function field(parameter, given) {
  const badges = [];
  if (parameter.written) badges.push(h("span", { class: "badge" }, parameter.read ? "in and out" : "out"));
  if (parameter.optional) badges.push(h("span", { class: "badge" }, "optional"));
  const title = [parameter.name, h("span", { class: "soft" }, parameter.type), badges];
  const problem = h("p", { class: "problem", id: `problem-${parameter.name}`, hidden: true });
  const id = `parameter-${parameter.name}`;
  if (parameter.kind !== "tensor") return h("div", { class: "parameter number", id }, numberField(parameter, given, title), problem);
  const notes = [parameter.text, parameter.shape].filter(Boolean).join("; ");
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
  const modes = [["tensor", "tensor"], ["null", "null"]];
  if (parameter.left_out) modes.unshift([LEFT_OUT, parameter.written ? "made for you" : "computed"]);
  const mode = given === LEFT_OUT ? LEFT_OUT : given ? "tensor" : "null";
  const known = parameter.dtypes.length ? parameter.dtypes : state.declared.dtypes;
  const dtypes = [...new Set([...known, ...state.declared.dtypes])];
  const first = state.operator.samples[0].arguments;
  const like = Object.values(first).find((each) => each?.shape !== undefined);
  const dtype = held.dtype ?? (parameter.dtypes.includes(like?.dtype) || !parameter.dtypes.length ? like?.dtype : parameter.dtypes[0]);
  const row = h("div", { class: "tensor" },
    input(parameter, "mode", "given as", { tag: "select", choices: options(modes, mode) }),
    input(parameter, "dtype", "dtype", { tag: "select", choices: options(dtypes, dtype) }),
    input(parameter, "shape", "shape", { value: held.shape ?? like?.shape ?? "", placeholder: "one number" }, "shape"));
  const layout = [
    input(parameter, "strides", "strides", { value: held.strides, placeholder: "row-major" }),
    input(parameter, "offset", "offset", { value: held.offset, placeholder: "0", inputmode: "numeric" }),
    input(parameter, "format", "format", { tag: "select", choices: options(state.declared.formats, held.format ?? "ND") }),
  ];
  if (parameter.read) layout.push(input(parameter, "values", "values", { tag: "textarea", rows: 2, value: held.values, placeholder: "drawn from the seed" }, "wide"));
  const more = h("details", {}, h("summary", {}, parameter.read ? "Layout and values" : "Layout"), h("div", { class: "layout" }, layout));
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
  const text = h("span", {}, h("span", { class: "title" }, title), h("span", { class: "soft note" }, parameter.text));
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
  const names = ["dtype", "shape", "strides", "offset", "format", "values"];
  return Object.fromEntries(names.filter(get).map((name) => [name, get(name).value]));
}

// A call and its answer.

async function askCall() {
  const seed = /^\d{1,15}$/.test($("seed").value.trim()) ? Number($("seed").value) : $("seed").value;
  const given = Object.fromEntries(state.operator.parameters.map((each) => [each.name, read(each)]));
  const body = { operator: state.operator.name, product: $("product").value, seed, arguments: given };
  history.replaceState(null, "", `#${state.operator.python}/${body.product}`);
  const told = await ask("/api/call", JSON.stringify(body), "application/json");
  state.answer = told;
  mark(told);
  document.querySelector(".results").classList.toggle("stale", Boolean(told.problem));
  if (told.problem) {
    $("copy").disabled = true;
    tell($("verdict"), "wait", "Not a call yet", [["", told.problem]]);
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
    for (const each of box.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
    const problem = $(`problem-${name}`);
    problem.hidden = !(here && told.problem);
    if (problem.hidden) continue;
    problem.textContent = told.problem;
    const wrong = box.querySelector(`[data-field="${told.field}"]`) ?? box.querySelector("[data-field=value]");
    wrong?.setAttribute("aria-invalid", "true");
    if (wrong?.closest("details")) wrong.closest("details").open = true;
  }
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

const shapeText = (shape) => (shape.length ? shape.join(" × ") : "one number");

function goTo(name) {
  const box = $(`parameter-${name}`);
  if (!box) return document.createTextNode(name);
  const go = () => {
    const fields = [...box.querySelectorAll("[data-field]")];
    (fields.find((each) => each.dataset.field === "shape" && each.offsetParent) ?? fields[0]).focus();
    box.scrollIntoView({ block: "center" });
  };
  return h("button", { type: "button", class: "link", onclick: go, title: `Go to ${name}` }, name);
}

function showVerdict(told) {
  if (told.status === 0) {
    const outputs = told.outputs.map((each) => [each.name, `${each.dtype}, ${shapeText(each.shape)}`]);
    tell($("verdict"), "good", `✓ ${told.status} ${told.name}`, outputs);
    return;
  }
  tell($("verdict"), "bad", `✗ ${told.status} ${told.name}`, [
    ["rule", told.rule ? `row ${told.row}: ${told.rule}` : "what the C type can hold"],
    ["parameter", goTo(told.parameter)],
    ["expected", told.expected],
    ["got", told.got],
    ["fix", told.fix, "fix"],
  ]);
}

function showChecks(told) {
  const marks = { passed: ["✓", "passed"], broken: ["✗", "broken"], "not reached": ["·", "unreached"] };
  const passed = told.checks.filter((each) => each.state === "passed").length;
  $("checks-count").textContent = `${passed} of ${told.checks.length} passed`;
  $("checks").replaceChildren(...told.checks.map((each) => {
    const [mark, className] = marks[each.state];
    return h("li", { class: className, "aria-current": each.state === "broken" ? "true" : null },
      h("span", { class: "mark", "aria-hidden": "true" }, mark), h("span", { class: "row" }, each.row), h("span", {}, each.rule),
      h("span", { class: "state" }, each.state === "broken" ? `broken, ${each.status}` : each.state));
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
    $("values").replaceChildren(h("p", { class: "soft" }, told.no_values));
    return;
  }
  const parts = [];
  const { inputs, outputs } = told.values;
  const out = outputs.find((each) => each.values.length > 1) ?? outputs[0]; // of several, one with something to see
  if (out?.values.length) parts.push(plotOf(out, inputs));
  const tables = (list) => h("div", { class: "tensors" }, list.map(tableOf));
  parts.push(tables(outputs));
  parts.push(h("details", {}, h("summary", {}, "Inputs"), tables(inputs)));
  $("values").replaceChildren(...parts);
}

function tableOf(tensor) {
  const { shape, values, dtype, name } = tensor;
  const width = shape.length ? shape[shape.length - 1] : 1;
  const title = h("h3", {}, name, " ", h("span", { class: "soft" }, `${dtype}, ${shapeText(shape)}`));
  if (!values.length) return h("div", {}, title, h("p", { class: "soft" }, "no elements"));
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
  return h("div", {}, title,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${name}` }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))),
    shown ? h("p", { class: "soft" }, `the first of ${values.length} elements`) : null);
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
    options([["", "position"], ...alike.map((each) => [each.name, each.name])], state.against));
  return h("div", { class: "grid" }, h("label", {}, `${out.name} against`, choose), frame);
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
  const against = other ? other.name : "position";
  if (!points.length) return h("p", { class: "soft" }, "No finite values to draw.");
  const lows = (place) => points.reduce((least, each) => Math.min(least, each[place]), Infinity);
  const highs = (place) => points.reduce((most, each) => Math.max(most, each[place]), -Infinity);
  const [least, most] = [lows(1), highs(1)];
  const label = `${out.name} against ${against}: ${points.length} values from ${show(least, out.dtype)} to ${show(most, out.dtype)}`;
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
  return missing ? h("div", {}, svg, h("p", { class: "soft" }, `${missing} of ${all.length} are not finite, and not drawn`)) : svg;
}

// Code.

function showCode() {
  const code = state.answer?.code?.[state.language];
  $("code").textContent = code?.text ?? code?.why ?? "";
  $("copy").disabled = !code?.text;
}

async function copy() {
  const text = $("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const range = document.createRange();
    range.selectNodeContents($("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  $("copy").textContent = "Copied";
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
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
  $(`name-${role}`).textContent = `${file.name}, ${file.size.toLocaleString("en")} bytes`;
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
    for (const name of ["picture", "figures"]) $(name).hidden = true;
    if (told.problem) {
      tell($("judged"), "wait", "No verdict", [["", told.problem]]);
      return;
    }
    const rows = [["standard", told.standard], ["output", `${told.dtype}, ${shapeText(told.shape)}`]];
    if (told.figures) rows.push(["bad elements", `${told.bad.toLocaleString("en")} of ${told.count.toLocaleString("en")}`]);
    tell($("judged"), told.passed ? "good" : "bad", told.passed ? "✓ passed" : "✗ failed", [...rows, ...told.reasons.map((each) => ["why", each])]);
    if (told.picture) showPicture(told);
    if (told.figures) showFigures(told);
  }, 0);
}

function showFigures(told) {
  const value = (each) => (typeof each === "number" ? String(Number(each.toPrecision(6))) : String(each));
  const table = (head, rows, label) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: "figures" }, h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each) => h("td", {}, value(each))))))));
  const figures = Object.entries(told.figures).map(([name, each]) => [NAMES[name] ?? name, each]);
  const bad = told.first_bad.map((each) => [`[${each.position.join(", ")}]`, each.actual, each.golden, each.error, each.ulp]);
  const part = (title, ...what) => h("div", {}, h("h2", {}, title), table(...what, title));
  $("figures").replaceChildren(h("div", { class: "pair" }, part("Figures", ["figure", "value"], figures),
    ...(bad.length ? [part("First bad elements", ["position", "actual", "golden", "error", "ULP"], bad)] : [])));
  $("figures").hidden = false;
}

function showPicture(told) {
  const figure = (title, drawing) => h("figure", {}, h("h3", {}, title), drawing);
  $("picture").replaceChildren(h("div", { class: "pictures" },
    figure("Error against magnitude", errorPlot(told.picture)),
    figure("ULP of the output’s dtype", histogram(told.ulp_histogram)),
    figure("Where the bad elements lie", badMap(told.picture))));
  $("picture").hidden = false;
}

function errorPlot(picture) {
  const points = [...picture.good, ...picture.bad];
  if (!points.length) return h("p", { class: "soft" }, "No error at all.");
  const log = (pairs) => pairs.filter(([x, y]) => x > 0 && y > 0).map((pair) => pair.map(Math.log10));
  const every = log([...points, ...picture.allowed]);
  const span = (place) => {
    const values = every.map((each) => each[place]);
    const low = Math.floor(Math.min(...values)), high = Math.max(Math.ceil(Math.max(...values)), low + 1);
    const step = Math.max(1, Math.ceil((high - low) / 5));
    return Array.from({ length: Math.ceil((high - low) / step) + 1 }, (_, at) => low + at * step);
  };
  const label = `Errors of ${points.length} elements against the size of their golden values; ${picture.bad.length} are bad`;
  const across = span(0);
  const { svg, x, y } = axes(340, 260, across, [across[0], across[across.length - 1]], span(1), { label, x: "size of the golden value", text: (at) => `1e${at}` });
  for (const [name, className] of [["good", "good"], ["bad", "wrong"]]) {
    for (const [a, b] of log(picture[name])) svg.append(s("circle", { class: className, cx: x(a), cy: y(b), r: 2 }));
  }
  const line = log(picture.allowed).map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
  if (line) svg.append(s("polyline", { class: "allowed", points: line }, s("title", {}, "allowed")));
  return svg;
}

function histogram(counts) {
  const entries = Object.entries(counts);
  const most = Math.max(...entries.map(([, count]) => count), 1);
  const label = `Elements by ULP: ${entries.filter(([, count]) => count).map(([name, count]) => `${name}: ${count}`).join(", ")}`;
  const svg = s("svg", { viewBox: "0 0 340 260", role: "img", "aria-label": label });
  const step = 320 / entries.length;
  entries.forEach(([name, count], place) => {
    const high = count ? 8 + (Math.log1p(count) / Math.log1p(most)) * 180 : 0;
    const left = 10 + place * step;
    svg.append(s("rect", { class: "bar-fill", x: left + 3, width: step - 6, y: 225 - high, height: high, rx: 2 }));
    if (count) svg.append(s("text", { x: left + step / 2, y: 218 - high, "text-anchor": "middle" }, compact(count)));
    svg.append(s("text", { x: left + step / 2, y: 242, "text-anchor": "middle" }, name.replace("<= ", "≤")));
  });
  svg.append(s("line", { class: "axis", x1: 10, x2: 330, y1: 225, y2: 225 }));
  return svg;
}

const compact = (count) => new Intl.NumberFormat("en", { notation: "compact" }).format(count);

function badMap(picture) {
  const rows = picture.map.length, columns = picture.map[0].length;
  const most = Math.max(...picture.map.flat().filter((each) => each !== null), 0);
  const label = most ? `A map of ${picture.rows} rows and ${picture.columns} columns of elements; up to ${Number((most * 100).toPrecision(3))} % of a cell are bad` : "No bad elements";
  const svg = s("svg", { viewBox: "0 0 340 260", role: "img", "aria-label": label });
  svg.append(s("rect", { class: "field", x: 26, y: 12, width: 302, height: 208 }));
  picture.map.forEach((row, high) => row.forEach((share, wide) => {
    if (!share) return;
    svg.append(s("rect", { class: "cell", x: 26 + (wide * 302) / columns, y: 12 + (high * 208) / rows, width: 302 / columns, height: 208 / rows,
      "fill-opacity": 0.15 + 0.85 * (share / most) }));
  }));
  if (!most) svg.append(s("text", { x: 177, y: 120, "text-anchor": "middle" }, "no bad elements"));
  svg.append(s("text", { x: 177, y: 240, "text-anchor": "middle" }, `${picture.folded ? "folded" : "last axis"}, ${picture.columns.toLocaleString("en")}`));
  svg.append(s("text", { x: 0, y: 0, transform: "translate(16 116) rotate(-90)", "text-anchor": "middle" }, `axes before it, ${picture.rows.toLocaleString("en")}`));
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
  try { if (theme) localStorage.setItem("theme", theme); } catch { /* a browser that keeps nothing */ }
}

/** Offer the operators with all words of a text in their names, family or summary, and choose the first if the chosen one is not among them. */
function find(text) {
  const words = text.toLowerCase().split(/\s+/);
  const fits = ({ name, python, family, summary }) => words.every((word) => `${name} ${python} ${family} ${summary}`.toLowerCase().includes(word));
  const offered = new Set(state.declared.operators.filter(fits).map((each) => each.python));
  for (const group of $("operator").children) {
    for (const option of group.children) option.hidden = option.disabled = !offered.has(option.value);
    group.hidden = [...group.children].every((option) => option.hidden);
  }
  $("find").setAttribute("aria-invalid", String(!offered.size));
  if (offered.size && !offered.has($("operator").value)) chooseOperator(offered.values().next().value);
}

async function start() {
  try { setTheme(localStorage.getItem("theme")); } catch { /* as above */ }
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
  $("copy").addEventListener("click", copy);

  state.declared = await ask("/api/declared");
  const { operators, products, standards, dtypes, raw, version } = state.declared;
  $("version").textContent = version;
  for (const family of new Set(operators.map((each) => each.family))) {
    const members = operators.filter((each) => each.family === family);
    $("operator").append(h("optgroup", { label: family }, ...options(members.map((each) => [each.python, each.name]))));
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

  const [operator, product] = location.hash.slice(1).split("/");
  if (products.some((each) => each.tag === product)) $("product").value = product;
  chooseOperator(operator);
}

start();
