"use strict";
const $ = (id) => document.getElementById(id);
const mostBytes = 200e6; // of the files together
const mostShown = 1e6; // bytes of output in the page; all of it is a file
const mostLinked = 8 << 10; // bytes of the inputs in a link, deflated
const mostInflated = 4 << 20; // bytes of the inputs that a link may unpack to

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const size = (bytes) => bytes < 1e4 ? `${bytes} bytes` : `${(bytes / 1e6).toFixed(2)} MB`;
const make = (tag, text, more) => Object.assign(document.createElement(tag), { textContent: text }, more);

// The command is fetched and compiled once. Each run gets an instance of its own.
async function load() {
  const [shown, bar] = $("loading").children;
  const response = await fetch("weir.wasm.gz");
  if (!response.ok) throw new Error(`weir.wasm.gz: ${response.status} ${response.statusText}`);
  const total = Number(response.headers.get("Content-Length"));
  let done = 0;
  let stream = response.body.pipeThrough(new TransformStream({
    transform(part, out) {
      done += part.length;
      if (total) bar.value = Math.min(1, done / total);
      shown.textContent = `Loading the command: ${size(done)}${total ? ` of ${size(total)}` : ""}`;
      out.enqueue(part);
    },
  }));
  if (!response.headers.get("Content-Encoding")) stream = stream.pipeThrough(new DecompressionStream("gzip"));
  const module = await WebAssembly.compileStreaming(new Response(stream, { headers: { "Content-Type": "application/wasm" } }));
  $("loading").hidden = true;
  return module;
}
const compiled = load();
compiled.catch((error) => {
  $("loading").replaceChildren(make("span", `The command cannot be loaded: ${error.message}`, { className: "fault" }));
});

// start runs the command in a worker. finished resolves to the exit status and to the files
// that the run made, or that it was stopped.
function start(args, files, on) {
  const worker = new Worker("worker.js");
  let end;
  const finished = new Promise((resolve) => {
    end = (result) => { worker.terminate(); resolve({ made: [], ...result }); };
    worker.onmessage = ({ data }) => {
      if (data.bytes) on.output(data.fd, data.bytes);
      else if (data.progress) on.progress?.(data.progress);
      else end(data);
    };
    worker.onerror = (event) => end({ status: 2, failure: event.message || "the worker has failed" });
  });
  compiled.then((module) => worker.postMessage({ module, args, files }), (error) => end({ status: 2, failure: error.message }));
  return { finished, stop: () => end({ stopped: true }) };
}

const urls = new Map(); // by the element that shows or links the file
function setFile(element, attribute, blob) {
  URL.revokeObjectURL(urls.get(element));
  urls.set(element, URL.createObjectURL(blob));
  element[attribute] = urls.get(element);
}

function debounced(call, ms) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(call, ms); };
}

// The first section: a schedule by its name.
let drawing = []; // runs

function drawArgs() {
  const { schedule, ranks, per, microbatches, f, i, w, latency } = $("draw").elements;
  const args = [schedule.value, "--ranks", ranks.value];
  if (per.value !== schedule.selectedOptions[0].dataset.stages) args.push("--stages", String(ranks.value * per.value));
  return [...args, "--microbatches", microbatches.value, "--f", f.value, "--i", i.value, "--w", w.value, "--latency", latency.value];
}

function showValues() {
  for (const label of $("draw").querySelectorAll("label:has(input)")) {
    label.querySelector("output").value = label.querySelector("input").value;
  }
}

async function draw() {
  showValues();
  for (const run of drawing) run.stop();
  const args = drawArgs();
  const printed = [[], []];
  const errors = [[], []];
  const collect = (n) => ({ output: (fd, bytes) => (fd === 1 ? printed : errors)[n].push(bytes) });
  const runs = drawing = [start(["draw", ...args], [], collect(0)), start(["sim", ...args, "--json"], [], collect(1))];
  $("draw-command").textContent = `weir draw ${args.join(" ")} -o ${args[0]}.svg`;
  $("picture").classList.add("old");
  const [picture, figures] = await Promise.all(runs.map((run) => run.finished));
  if (runs !== drawing) return;
  const failed = [figures, picture].find((run) => run.status);
  $("draw-status").className = failed ? "fault" : "";
  if (failed) {
    $("draw-status").textContent = failed.failure ?? (await new Blob(errors[failed === picture ? 0 : 1]).text()).trim();
    return;
  }
  showFigures(JSON.parse(await new Blob(printed[1]).text()));
  const svg = new Blob(printed[0], { type: "image/svg+xml" });
  setFile($("picture"), "src", svg);
  setFile($("save"), "href", svg);
  $("save").download = `${args[0]}.svg`;
  await $("picture").decode().catch(() => {});
  $("picture").hidden = $("save").hidden = false;
  $("picture").classList.remove("old");
  performance.mark("drawing");
}

function showFigures(sim) {
  const number = (x) => String(Math.round(x * 1000) / 1000);
  const most = Math.max(...sim.peak_microbatches_by_rank);
  const figures = [number(sim.makespan), `${(100 * sim.bubble_makespan).toFixed(1)} %`, number(most)];
  $("facts").querySelectorAll("dd").forEach((dd, i) => { dd.textContent = figures[i]; });
  $("draw-status").textContent = "";
  $("picture").alt = `${sim.name}: ${sim.ranks} ranks, ${sim.stages} stages, ${sim.microbatches} microbatches, ` +
    `makespan ${figures[0]}, bubble ${figures[1]}, at most ${figures[2]} microbatches in memory on a rank`;
  const row = (cells, tag) => {
    const tr = make("tr", "");
    tr.append(...cells.map((cell) => make(tag, cell)));
    return tr;
  };
  $("ranks").replaceChildren(row(["Rank", "Busy", "Waits", "Microbatches in memory"], "th"),
    ...sim.per_rank.map((rank, r) => row([r, number(rank.busy), number(rank.wait), number(sim.peak_microbatches_by_rank[r])], "td")));
}

$("draw").addEventListener("input", debounced(draw, 100));
$("draw").elements.schedule.addEventListener("change", (event) => {
  $("draw").elements.per.value = event.target.selectedOptions[0].dataset.stages;
  draw();
});
$("draw").addEventListener("submit", (event) => event.preventDefault());

// The second section: files and any command.
let inputs = []; // of {name, blob}
let running;
const nameOf = (name) => name.slice(-120).replace(/[^\p{L}\p{N}_.+-]/gu, "_").replace(/^-/, "_") || "file";

// guess returns the command for the files, from their names and first bytes.
async function guess(files) {
  const names = files.length > 1 ? "." : files[0].name; // a folder: arguments have a limit
  const { name, blob } = files[0];
  const head = await blob.slice(0, 1 << 16).text();
  const has = (...keys) => keys.some((key) => head.includes(key));
  if (/\.(tar|tgz|tar\.gz)$/.test(name) || has("pg_config", "nccl_version", "collective_seq_id")) return `hang ${names}`;
  if (/\.gz$/.test(name) || has('"traceEvents"', '"resourceSpans"')) return `trace ${names} -o trace.html`;
  if (/\.(pickle|pkl)$/.test(name) || has("device_traces")) return `mem leaks ${name}`;
  if (/\.jsonl$/.test(name) || has('"microbatch":') && has('"allocated"', '"live"', '"peak"')) return `mem log ${name} --html memory.html`;
  if (has('"hidden_size"', '"num_hidden_layers"', '"n_layer"', "--num-layers")) return `fit ${name} --ranks 4 --seq 4096 --memory 80GiB`;
  if (/^id,|\blower,upper\b/.test(head)) return `place ${name} --time 10s`;
  return `sim ${name}; draw ${name} -o plan.svg`;
}

async function take(list) {
  const files = Array.from(list, (file) => ({ name: nameOf(file.name), blob: file }));
  if (files.length === 0) return;
  const total = files.reduce((sum, file) => sum + file.blob.size, 0);
  if (total > mostBytes) {
    say(`The files have ${size(total)}; this page reads ${size(mostBytes)} at most. The command on your machine has no such limit.`, true);
    return;
  }
  setInputs(files);
  $("command").value = await guess(files);
  run();
}

function setInputs(files) {
  inputs = files;
  $("files").replaceChildren(...files.map((file) => make("li", `${file.name}, ${size(file.blob.size)}`)));
}

function say(text, fault) {
  $("read-status").textContent = text;
  $("read-status").className = fault ? "fault" : "";
}

async function run() {
  running?.stop();
  const commands = $("command").value.split(";").map((line) => (line.match(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? []).map((word) => word.replace(/["']/g, "")));
  const output = [];
  const decoder = new TextDecoder();
  const files = new Map(inputs.map((file) => [file.name, file]));
  const began = performance.now();
  let shown = 0;
  let result = {};
  const made = new Map();
  $("output").textContent = "";
  $("made").replaceChildren();
  $("progress").removeAttribute("value");
  $("progress").hidden = $("stop").disabled = false;
  for (const [n, words] of commands.entries()) {
    const args = words[0] === "weir" ? words.slice(1) : words;
    if (n > 0 && args.length === 0) continue;
    say(`Running weir ${args.join(" ")}`);
    const mine = running = start(args, [...files.values()], {
      output(fd, bytes) {
        output.push(bytes);
        if (shown < mostShown) $("output").append(decoder.decode(bytes.subarray(0, mostShown - shown), { stream: true }));
        shown += bytes.length;
      },
      progress(part) { $("progress").value = part; },
    });
    result = await mine.finished;
    if (mine !== running) return;
    for (const file of result.made) {
      files.set(file.name, file);
      made.set(file.name, file);
    }
    if (result.status !== 0) break;
  }
  $("progress").hidden = $("stop").disabled = true;
  if (shown > mostShown) made.set("output.txt", { name: "output.txt", blob: new Blob(output) });
  showMade([...made.values()]);
  const took = seconds(performance.now() - began);
  if (result.stopped) say(`Stopped after ${took}.`);
  else if (result.failure) say(`The command has failed after ${took}: ${result.failure}`, true);
  else say(`Done in ${took}${result.status ? `, exit status ${result.status}${result.status === 1 ? ": there is a finding" : ""}` : ""}.`);
}

function showMade(files) {
  $("made").replaceChildren(...files.map(({ name, blob }) => {
    const item = make("li", "");
    const link = make("a", `Save ${name}, ${size(blob.size)}`, { download: name });
    setFile(link, "href", blob);
    item.append(link);
    if (name.endsWith(".svg")) {
      const picture = make("img", "", { alt: `Picture ${name}` });
      setFile(picture, "src", new Blob([blob], { type: "image/svg+xml" }));
      item.append(picture);
    }
    return item;
  }));
}

$("choose").addEventListener("change", (event) => take(event.target.files));
$("read").addEventListener("submit", (event) => { event.preventDefault(); run(); });
$("stop").addEventListener("click", () => running.stop());
addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
addEventListener("dragleave", () => $("drop").classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  take(event.dataTransfer.files);
});

// A link carries the inputs behind its #, which a browser does not send to the host: JSON,
// deflated, in base64 for URLs.
async function through(bytes, transform, most) {
  const parts = [];
  let length = 0;
  for await (const part of readable(new Blob([bytes]).stream().pipeThrough(transform))) {
    length += part.length;
    if (length > most) throw new Error(`it has more than ${size(most)}`);
    parts.push(part);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function* readable(stream) { // not every browser iterates over a stream
  const reader = stream.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
}

const letters = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
const bytesOf = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));

async function copyLink(state, status) {
  try {
    const deflated = await through(new TextEncoder().encode(JSON.stringify(await state())), new CompressionStream("deflate-raw"), mostLinked);
    location.hash = btoa(letters(deflated)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    status.textContent = "The link is in the address bar and on the clipboard. It has the inputs in it.";
  } catch (error) {
    status.textContent = `The inputs do not fit into a link, deflated: ${error.message}. Send the files.`;
  }
}

$("draw-link").addEventListener("click", () => copyLink(() => ({ draw: Object.fromEntries(new FormData($("draw"))) }), $("draw-status")));
$("read-link").addEventListener("click", () => copyLink(async () => {
  const files = [];
  for (const { name, blob } of inputs) {
    if (blob.size > mostInflated) throw new Error(`${name} has ${size(blob.size)}`);
    files.push({ name, bytes: letters(new Uint8Array(await blob.arrayBuffer())) });
  }
  return { command: $("command").value, files };
}, $("read-status")));

async function openLink() {
  if (location.hash.length < 2) return;
  try {
    const packed = bytesOf(atob(location.hash.slice(1).replaceAll("-", "+").replaceAll("_", "/")));
    const state = JSON.parse(new TextDecoder().decode(await through(packed, new DecompressionStream("deflate-raw"), mostInflated)));
    for (const [name, value] of Object.entries(state.draw ?? {})) {
      if ($("draw").elements[name]) $("draw").elements[name].value = value;
    }
    if (state.command === undefined) return;
    setInputs(state.files.map((file) => ({ name: nameOf(file.name), blob: new Blob([bytesOf(file.bytes)]) })));
    $("command").value = state.command;
    run();
  } catch (error) {
    say(`The link cannot be read: ${error.message}`, true);
  }
}
openLink().then(draw);
