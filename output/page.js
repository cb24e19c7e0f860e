// Draws the flame graph of the page. Frames come root first, each followed by what it has called: depth and number
// of the name. Cells are frame, thread, state, weight, weight of before.
(function () {
	"use strict";
	const row = 17, narrow = 0.3, tableRows = 500;
	const byId = id => document.getElementById(id);
	const data = JSON.parse(byId("data").textContent);
	const compare = Boolean(data.pages), names = data.names, count = data.frames.length / 2;
	const views = ["flame", "icicle", "callers", "table"];

	// A tree is laid out as columns: name, parent, depth, weight of its own (self, was), with all below (total, wasTotal), and for drawing left and
	// end, the first frame that is not below it. was is what it is compared with, scaled to the same total.
	const column = (n, C) => new (C || Float64Array)(n);
	const base = { n: count, name: column(count, Int32Array), depth: column(count, Int32Array), parent: column(count, Int32Array) };
	for (let i = 0, path = []; i < count; i++) {
		const d = data.frames[2 * i];
		base.depth[i] = d;
		base.name[i] = data.frames[2 * i + 1];
		base.parent[i] = d ? path[d - 1] : -1;
		path[d] = i;
	}

	// state is what the address's fragment tells.
	const first = { view: "icicle", fn: -1, zoom: -1, q: "", thread: -1, state: -1, fold: 0, module: 0 };
	let state = { ...first }, tree = base, above = null, sum = 0, matches = null, current = -1, drawn = [], hidden = 0, order = "self";

	// finish computes what follows from the frames' own weights.
	function finish(t) {
		t.total = t.self.slice(0, t.n);
		t.wasTotal = t.was.slice(0, t.n);
		t.end = column(t.n, Int32Array);
		t.left = column(t.n);
		t.wide = column(t.n);
		t.deepest = 0;
		for (let i = t.n - 1; i >= 0; i--) {
			t.end[i] = Math.max(t.end[i], i + 1);
			const p = t.parent[i];
			t.deepest = Math.max(t.deepest, t.depth[i] + 1);
			if (p < 0) continue;
			t.total[p] += t.total[i];
			t.wasTotal[p] += t.wasTotal[i];
			t.end[p] = Math.max(t.end[p], t.end[i]);
		}
		// A frame begins where its caller does, or where its left neighbour ends.
		const next = [0];
		t.sum = 0;
		for (let i = 0; i < t.n; i++) {
			const d = t.depth[i];
			t.wide[i] = compare ? (t.total[i] + t.wasTotal[i]) / 2 : t.total[i];
			t.left[i] = next[d];
			next[d] += t.wide[i];
			next[d + 1] = t.left[i];
			if (!d) t.sum += t.wide[i];
		}
		return t;
	}

	// weigh gives the frames the weight of the threads and states that are asked for.
	function weigh() {
		base.self = column(count);
		base.was = column(count);
		const c = data.cells;
		let after = 0, before = 0;
		for (let i = 0; i < c.length; i += 5) {
			if (state.thread >= 0 && c[i + 1] !== state.thread || state.state >= 0 && c[i + 2] !== state.state) continue;
			base.self[c[i]] += c[i + 3];
			base.was[c[i]] += c[i + 4];
			after += c[i + 3];
			before += c[i + 4];
		}
		if (compare && before) for (let i = 0; i < count; i++) base.was[i] *= (after || 1) / before;
		return finish(base);
	}

	// grower merges call paths to a new tree.
	function grower() {
		const t = { name: [], parent: [], depth: [], self: [], was: [] };
		let slots = column(1 << 12, Int32Array); // by parent and name: number of the frame, plus one
		const place = (p, name) => {
			let at = Math.imul(Math.imul(p + 1, 0x9e3779b1) ^ name, 0x85ebca6b) >>> 7;
			for (at &= slots.length - 1; slots[at]; at = (at + 1) & (slots.length - 1)) {
				const c = slots[at] - 1;
				if (t.parent[c] === p && t.name[c] === name) break;
			}
			return at;
		};
		return {
			t,
			child(p, name) {
				let at = place(p, name), c = slots[at] - 1;
				if (c < 0) {
					c = t.name.length;
					if (2 * c > slots.length) {
						slots = column(4 * slots.length, Int32Array);
						for (let i = 0; i < c; i++) slots[place(t.parent[i], t.name[i])] = i + 1;
						at = place(p, name);
					}
					slots[at] = c + 1;
					t.name.push(name);
					t.parent.push(p);
					t.depth.push(p < 0 ? 0 : t.depth[p] + 1);
					t.self.push(0);
					t.was.push(0);
				}
				return c;
			},
			// sorted is the tree, each frame followed by what is below it, heaviest first.
			sorted() {
				const n = t.name.length, weight = t.self.map((v, i) => v + t.was[i]), child = column(n + 1, Int32Array), sister = column(n, Int32Array);
				for (let i = n - 1; i >= 0; i--) {
					const p = t.parent[i];
					if (p >= 0) weight[p] += weight[i];
					sister[i] = child[p + 1];
					child[p + 1] = i + 1;
				}
				const out = { n: 0, name: column(n, Int32Array), parent: column(n, Int32Array), depth: column(n, Int32Array), self: column(n), was: column(n) };
				const todo = [], at = column(n, Int32Array), push = p => {
					const list = [];
					for (let i = child[p + 1] - 1; i >= 0; i = sister[i] - 1) if (weight[i] > 0) list.push(i);
					if (list.length > 1) list.sort((a, b) => weight[a] - weight[b]);
					for (const i of list) todo.push(i);
				};
				push(-1);
				while (todo.length) {
					const i = todo.pop(), o = out.n++;
					at[i] = o;
					out.name[o] = t.name[i];
					out.depth[o] = t.depth[i];
					out.parent[o] = t.parent[i] < 0 ? -1 : at[t.parent[i]];
					out.self[o] = t.self[i];
					out.was[o] = t.was[i];
					push(i);
				}
				return finish(out);
			},
		};
	}

	// folded is the tree in which a function that calls itself, by whatever ways, is one frame.
	function folded(t) {
		const g = grower(), to = column(t.n, Int32Array);
		for (let i = 0; i < t.n; i++) {
			const p = t.parent[i] < 0 ? -1 : to[t.parent[i]];
			let same = p;
			while (same >= 0 && g.t.name[same] !== t.name[i]) same = g.t.parent[same];
			to[i] = same >= 0 ? same : g.child(p, t.name[i]);
			g.t.self[to[i]] += t.self[i];
			g.t.was[to[i]] += t.was[i];
		}
		return g.sorted();
	}

	// callers is the tree from the functions that ran to who called them.
	function callers(t) {
		const g = grower();
		for (let i = 0; i < t.n; i++) {
			if (t.self[i] > 0 || t.was[i] > 0) climb(g, t, -1, i, t.self[i], t.was[i]);
		}
		return g.sorted();
	}

	function climb(g, t, at, i, self, was) {
		for (; i >= 0; i = t.parent[i]) at = g.child(at, t.name[i]);
		g.t.self[at] += self;
		g.t.was[at] += was;
	}

	// sandwich is what one function calls, and what it is called by.
	function sandwich(t, fn) {
		const down = grower(), up = grower(), root = down.child(-1, fn), to = column(t.n, Int32Array).fill(-1);
		up.child(-1, fn);
		for (let i = 0; i < t.n; i++) {
			const p = t.parent[i];
			if (p >= 0 && to[p] >= 0) to[i] = down.child(to[p], t.name[i]);
			else if (t.name[i] === fn) {
				to[i] = root;
				climb(up, t, 0, p, t.total[i], t.wasTotal[i]);
			}
			if (to[i] >= 0) {
				down.t.self[to[i]] += t.self[i];
				down.t.was[to[i]] += t.was[i];
			}
		}
		return [down.sorted(), up.sorted()];
	}

	function build() {
		const whole = state.fold ? folded(weigh()) : weigh();
		sum = whole.sum;
		above = null;
		tree = whole;
		if (state.view === "callers") tree = callers(whole);
		if (state.fn >= 0) [tree, above] = sandwich(whole, state.fn);
		if (state.zoom >= tree.n) state.zoom = -1;
		current = state.zoom;
	}

	// Colours: a hue for each kind of code or module, a shade for each name.
	const hues = [[14, 75], [45, 75], [105, 40], [285, 50], [352, 65], [176, 50], [212, 65], [225, 25], [0, 0], [45, 12]];
	const dark = matchMedia("(prefers-color-scheme: dark)");
	let printing = false;
	const isDark = () => dark.matches && !printing;
	function hash(s) {
		let h = 2166136261;
		for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 16777619);
		return h >>> 0;
	}
	const shade = names.map(hash), moduleHue = data.modules.map(m => hash(m) % 360);
	function color(t, i) {
		const n = t.name[i];
		if (matches && matches[n]) return isDark() ? "#8436b8" : "#c77cf4";
		if (compare) {
			const share = (t.total[i] - t.wasTotal[i]) / (Math.max(t.total[i], t.wasTotal[i]) || 1), strength = Math.min(1, Math.abs(share));
			const light = isDark() ? 25 + 20 * strength : 92 - 35 * strength;
			return "hsl(" + (share > 0 ? 8 : 215) + "," + Math.round(85 * strength) + "%," + light + "%)";
		}
		const [hue, full] = state.module ? [moduleHue[data.moduleOf[n]], data.modules[data.moduleOf[n]] ? 55 : 0] : hues[data.kindOf[n]];
		const turn = full > 30 ? shade[n] % 17 - 8 : 0;
		if (!isDark()) return "hsl(" + (hue + turn) + "," + full + "%," + (66 + (shade[n] >>> 8) % 12) + "%)";
		return "hsl(" + (hue + turn) + "," + full + "%," + darkEnough(hue + turn, full, 30 + (shade[n] >>> 8) % 10) + "%)";
	}
	// darkEnough lowers a lightness until the light text on it has a contrast of 4.5 (WCAG 2.1, 1.4.3: yellow and
	// green are brighter than blue).
	const lowered = new Map();
	function darkEnough(hue, full, light) {
		const key = (hue * 101 + full) * 101 + light;
		if (!lowered.has(key)) {
			let l = light;
			while (luminance(hue, full / 100, l / 100) > 0.15) l--;
			lowered.set(key, l);
		}
		return lowered.get(key);
	}
	function luminance(hue, full, light) {
		const part = n => {
			const k = (n + hue / 30 + 12) % 12, v = light - full * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
			return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
		};
		return 0.2126 * part(0) + 0.7152 * part(8) + 0.0722 * part(4);
	}

	const canvas = byId("canvas"), scroll = byId("scroll"), context = canvas.getContext("2d");
	// rowOf is where a frame of a tree is drawn: callers of a sandwich above it.
	function rowOf(t, i) {
		if (t === above) return above.deepest - 1 - t.depth[i];
		if (above) return above.deepest - 1 + t.depth[i];
		return state.view === "flame" ? t.deepest - 1 - t.depth[i] : t.depth[i];
	}
	const rows = () => above ? above.deepest - 1 + tree.deepest : tree.deepest;

	function draw() {
		if (state.view === "table") return;
		const width = scroll.clientWidth, height = printing ? Math.min(rows() * row, 8000) : scroll.clientHeight, dots = window.devicePixelRatio || 1;
		byId("spacer").style.height = Math.max(0, rows() * row - height) + "px";
		canvas.width = width * dots;
		canvas.height = height * dots;
		canvas.style.width = width + "px";
		canvas.style.height = height + "px";
		context.setTransform(dots, 0, 0, dots, 0, -scroll.scrollTop * dots);
		context.font = "12px monospace";
		context.textBaseline = "middle";
		drawn = [];
		hidden = 0;
		if (above) drawTree(above, -1, width, height);
		drawTree(tree, state.zoom, width, height);
		byId("note").textContent = hidden ? (hidden > 1 ? hidden + " frames are" : "1 frame is") + " narrower than a third of a pixel and not drawn (zoom in, or use the table)" : "";
	}

	function drawTree(t, zoomed, width, height) {
		const x0 = zoomed < 0 ? 0 : t.left[zoomed], w0 = (zoomed < 0 ? t.sum : t.wide[zoomed]) || 1;
		for (let i = 0; i < t.n;) {
			const x = (t.left[i] - x0) / w0 * width, w = t.wide[i] / w0 * width;
			// Passes over all that is beside the window or too narrow to be seen.
			if (x + w <= 0.01 || x >= width - 0.01) { i = t.end[i]; continue; }
			if (w < narrow) { hidden += t.end[i] - i; i = t.end[i]; continue; }
			bar(t, i, Math.max(x, 0), Math.min(x + w, width) - Math.max(x, 0), height, zoomed);
			i++;
		}
	}

	// fit cuts a name to what is readable in w pixels: 7.25 for a letter, twice
	// that for what may be wide.
	function fit(name, w) {
		const room = Math.floor((w - 6) / 7.25);
		let cells = 0, cut = 0;
		for (const c of name) {
			cells += c.codePointAt(0) < 0x1100 ? 1 : 2;
			if (cells <= room - 2) cut += c.length;
		}
		return cells <= room ? name : room < 4 ? "" : name.slice(0, cut) + "..";
	}

	function bar(t, i, x, w, height, zoomed) {
		const y = rowOf(t, i) * row;
		if (y + row < scroll.scrollTop || y > scroll.scrollTop + height) return;
		drawn.push({ t, i, x, w, y });
		context.globalAlpha = zoomed >= 0 && t.depth[i] < t.depth[zoomed] ? 0.5 : 1;
		context.fillStyle = color(t, i);
		context.fillRect(x, y, Math.max(w - 0.5, narrow), row - 1);
		if (t === tree && i === current) {
			context.strokeStyle = isDark() ? "#fff" : "#000";
			context.lineWidth = 1.5;
			context.strokeRect(x + 1, y + 1, Math.max(w - 2, 0), row - 3);
		}
		context.globalAlpha = 1;
		const label = w < 12 ? "" : fit(names[t.name[i]], w);
		if (label) {
			context.fillStyle = isDark() ? "#f0f0ec" : "#111";
			context.fillText(label, x + 3, y + row / 2);
		}
	}

	function at(event) {
		const box = canvas.getBoundingClientRect();
		const x = event.clientX - box.left, y = event.clientY - box.top + scroll.scrollTop;
		return drawn.find(d => x >= d.x && x < d.x + d.w && y >= d.y && y < d.y + row);
	}

	function time(ns) {
		const [v, unit] = ns >= 1e9 ? [ns / 1e9, " s"] : ns >= 1e6 ? [ns / 1e6, " ms"] : [ns / 1e3, " µs"];
		return (v >= 999.5 ? Math.round(v) : v.toPrecision(3)) + unit;
	}
	const share = v => (100 * v / (sum || 1)).toFixed(2) + "%";

	function tell(t, i) {
		const n = t.name[i], module = data.modules[data.moduleOf[n]];
		let text = names[n] + (module ? " (" + module + ")" : "") + ": ";
		if (compare) {
			const d = t.total[i] - t.wasTotal[i];
			text += share(t.wasTotal[i]) + " before, " + share(t.total[i]) + " after, " + (d < 0 ? "" : "+") + share(d);
		} else text += time(t.total[i]) + ", " + share(t.total[i]) + ", itself " + time(t.self[i]);
		byId("details").textContent = text + (compare ? "" : ", " + data.kinds[data.kindOf[n]]);
	}

	// fill lists the functions.
	function fill(t) {
		const self = column(names.length), total = column(names.length), was = column(names.length), open = column(names.length, Int32Array), path = [];
		for (let i = 0; i < t.n; i++) {
			while (path.length > t.depth[i]) open[path.pop()]--;
			const n = t.name[i];
			self[n] += t.self[i];
			if (!open[n]) { total[n] += t.total[i]; was[n] += t.wasTotal[i]; }
			open[n]++;
			path.push(n);
		}
		const key = order === "self" ? self : compare ? total.map((v, n) => Math.abs(v - was[n])) : total;
		const list = [...names.keys()].filter(n => (total[n] > 0 || was[n] > 0) && (!matches || matches[n])).sort((a, b) => key[b] - key[a]);
		const body = byId("rows");
		body.textContent = "";
		byId("total").textContent = compare ? "change" : "with callees";
		for (const n of list.slice(0, tableRows)) {
			const tr = body.insertRow();
			tr.tabIndex = 0;
			tr.dataset.fn = n;
			for (const text of [compare ? share(self[n]) : time(self[n]) + " " + share(self[n]), compare ? share(total[n] - was[n]) : time(total[n]) + " " + share(total[n]), names[n], data.modules[data.moduleOf[n]]]) tr.insertCell().textContent = text;
		}
		byId("note").textContent = list.length > tableRows ? list.length - tableRows + " more functions (search for them)" : "";
	}

	// search marks the frames whose name matches, and adds up the weight of those
	// below no other match.
	function search() {
		matches = null;
		byId("matched").textContent = "";
		if (!state.q) return;
		let re;
		try { re = new RegExp(state.q, /[A-Z]/.test(state.q) ? "" : "i"); }
		catch (e) { re = new RegExp(state.q.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"); }
		matches = names.map(n => re.test(n));
		let found = 0;
		for (let i = 0; i < base.n;) {
			if (matches[base.name[i]]) { found += base.wide[i]; i = base.end[i]; } else i++;
		}
		byId("matched").textContent = "matched " + share(found);
	}

	// The address's fragment keeps the state, so that it can be sent, and the back button undoes.
	function write(change, replace) {
		const next = { ...state, ...change }, words = new URLSearchParams();
		for (const k of Object.keys(first)) if (next[k] !== first[k]) words.set(k, next[k]);
		const hash = "#" + words;
		if (replace) history.replaceState(null, "", hash);
		else history.pushState(null, "", hash);
		read();
	}

	function read() {
		const words = new URLSearchParams(location.hash.slice(1)), next = { ...first };
		for (const k of Object.keys(first)) {
			if (!words.has(k)) continue;
			const v = words.get(k);
			if (typeof first[k] !== "number") next[k] = v;
			else if (/^-?\d+$/.test(v)) next[k] = +v;
		}
		if (!views.includes(next.view)) next.view = first.view;
		if (next.fn >= names.length) next.fn = -1;
		const turned = next.view !== state.view || next.fn !== state.fn;
		state = next;
		render(turned);
	}

	function render(turned) {
		build();
		search();
		if (state.view === "table") fill(state.fold ? folded(base) : base);
		byId("empty").hidden = tree.sum > 0;
		byId("table").hidden = state.view !== "table";
		canvas.hidden = byId("spacer").hidden = state.view === "table" || !byId("empty").hidden;
		for (const b of byId("views").children) b.setAttribute("aria-pressed", String(b.dataset.view === state.view && state.fn < 0));
		for (const k of ["fold", "module"]) byId(k).setAttribute("aria-pressed", String(Boolean(state[k])));
		for (const k of ["thread", "state"]) byId(k).value = state[k];
		if (byId("search").value !== state.q) byId("search").value = state.q;
		byId("reset").disabled = state.zoom < 0 && state.fn < 0;
		byId("both").disabled = state.zoom < 0;
		legend();
		draw();
		if (turned) {
			scroll.scrollTop = above ? Math.max(0, (above.deepest - 1) * row - scroll.clientHeight / 2) : state.view === "flame" ? rows() * row : 0;
			draw();
		}
		if (state.fn >= 0) byId("details").textContent = "callers of " + names[state.fn] + " are above it, what it calls is below";
	}

	function legend() {
		const box = byId("legend"), add = (text, style) => {
			const item = document.createElement("span"), dot = document.createElement("i");
			dot.style.background = style;
			item.append(dot, text);
			box.append(item);
		};
		box.textContent = "";
		if (compare) {
			add("more in " + data.pages[1], "hsl(8,85%,55%)");
			add("less", "hsl(215,85%,55%)");
		} else if (state.module) {
			box.textContent = "a colour for each module";
		} else {
			const met = new Set(base.name.map(n => data.kindOf[n]));
			data.kinds.forEach((name, k) => { if (met.has(k)) add(name, "hsl(" + hues[k][0] + "," + hues[k][1] + "%," + (isDark() ? darkEnough(hues[k][0], hues[k][1], 35) : 70) + "%)"); });
		}
	}

	function zoom(i) { write({ zoom: i }); }

	function move(by) {
		const t = tree;
		let i = current;
		if (i < 0) i = Math.max(state.zoom, 0);
		else if (by === "parent") i = Math.max(t.parent[i], 0);
		else if (by === "child" && i + 1 < t.end[i]) i++;
		else if (by === "right" && t.end[i] < t.n && t.depth[t.end[i]] === t.depth[i]) i = t.end[i];
		else if (by === "left") {
			const p = t.parent[i];
			for (let k = p + 1; k < i; k = t.end[k]) if (t.end[k] === i) { i = k; break; }
		}
		if (!(i < t.n)) return;
		current = i;
		tell(t, i);
		const y = rowOf(t, i) * row;
		if (y < scroll.scrollTop || y + row > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y - scroll.clientHeight / 2;
		draw();
	}

	for (const v of views) {
		const b = document.createElement("button");
		b.textContent = v;
		b.dataset.view = v;
		b.addEventListener("click", () => write({ view: v, fn: -1, zoom: -1 }));
		byId("views").append(b);
	}
	for (const [id, key, all] of [["thread", "threads", "all threads"], ["state", "states", "all states"]]) {
		const box = byId(id), weight = new Map(), part = id === "thread" ? 1 : 2;
		for (let i = 0; i < data.cells.length; i += 5) weight.set(data.cells[i + part], (weight.get(data.cells[i + part]) || 0) + data.cells[i + 3]);
		const option = (value, text) => { const o = document.createElement("option"); o.value = value; o.textContent = text; box.append(o); };
		option(-1, all);
		for (const [n, w] of [...weight].sort((a, b) => b[1] - a[1])) if (w > 0) option(n, data[key][n] + " (" + time(w) + ")");
		box.hidden = compare || weight.size < 2;
		box.addEventListener("change", () => write({ [id]: +box.value, zoom: -1 }));
	}
	const help = "/ search, Esc clear, arrows move, Enter or click zoom, Backspace back, s or right click callers and callees of a function (by touch: tap it, then the button), v next view, f fold recursion, m modules";
	const toggle = k => write({ [k]: state[k] ? 0 : 1, zoom: -1 });
	const slice = fn => write({ fn, zoom: -1, view: state.view === "table" ? "icicle" : state.view });
	byId("fold").addEventListener("click", () => toggle("fold"));
	byId("module").addEventListener("click", () => toggle("module"));
	byId("module").hidden = compare;
	byId("keys").addEventListener("click", () => { byId("details").textContent = help; });
	byId("reset").addEventListener("click", () => write({ zoom: -1, fn: -1 }));
	byId("both").addEventListener("click", () => slice(tree.name[state.zoom]));
	byId("search").addEventListener("input", e => write({ q: e.target.value }, true));
	for (const k of ["self", "total"]) byId(k).addEventListener("click", () => { order = k; render(); });
	byId("rows").addEventListener("click", e => { const tr = e.target.closest("tr"); if (tr) slice(+tr.dataset.fn); });
	canvas.addEventListener("click", e => {
		const hit = at(e);
		if (!hit) return;
		if (hit.t === tree) zoom(hit.i);
		else slice(hit.t.name[hit.i]);
		tell(hit.t, hit.t === tree || hit.t === above ? hit.i : 0);
	});
	canvas.addEventListener("contextmenu", e => {
		const hit = at(e);
		if (!hit) return;
		e.preventDefault();
		slice(hit.t.name[hit.i]);
	});
	canvas.addEventListener("mousemove", e => {
		const hit = at(e);
		if (hit && hit.t === tree && hit.i === current) return;
		current = hit && hit.t === tree ? hit.i : -1;
		if (hit) tell(hit.t, hit.i);
		draw();
	});
	scroll.addEventListener("scroll", draw);
	new ResizeObserver(draw).observe(scroll); // with the window, and when what is above or below grows
	window.addEventListener("popstate", read);
	window.addEventListener("hashchange", read);
	dark.addEventListener("change", () => render());
	window.addEventListener("beforeprint", () => { printing = true; render(); });
	window.addEventListener("afterprint", () => { printing = false; render(); });
	window.addEventListener("keydown", e => {
		const typing = e.target === byId("search");
		if (e.key === "Escape") { byId("search").blur(); write({ q: "", zoom: -1, fn: -1 }); return; }
		if (typing || e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === "SELECT") return;
		const row = e.target.closest && e.target.closest("#rows tr");
		if (e.key === "Enter" && row) { slice(+row.dataset.fn); return; }
		if (e.key === "Enter" && (e.target.id === "self" || e.target.id === "total")) { e.target.click(); return; }
		const up = state.view === "flame" && state.fn < 0;
		const act = {
			"/": () => byId("search").focus(),
			"?": () => byId("keys").click(),
			Enter: () => { if (e.target.tagName !== "BUTTON" && current >= 0) zoom(current); },
			Backspace: () => history.back(),
			s: () => { if (current >= 0) slice(tree.name[current]); },
			v: () => write({ view: views[(views.indexOf(state.view) + 1) % views.length], fn: -1, zoom: -1 }),
			f: () => toggle("fold"),
			m: () => { if (!compare) toggle("module"); },
			ArrowUp: () => move(up ? "child" : "parent"),
			ArrowDown: () => move(up ? "parent" : "child"),
			ArrowLeft: () => move("left"),
			ArrowRight: () => move("right"),
		}[e.key];
		if (!act || state.view === "table" && e.key.startsWith("Arrow")) return;
		if (e.key !== "Enter") e.preventDefault();
		act();
	});
	byId("controls").hidden = false;
	byId("empty").textContent = data.cells.length ? "There is no sample of this thread in this state." : data.empty;
	read();
})();
