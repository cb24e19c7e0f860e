// Draws the flame graph of the page: frames come root first, each followed by
// what it has called, as depth, number of the name, own weight.
(function () {
	"use strict";
	const row = 17;
	const byId = id => document.getElementById(id);
	const data = JSON.parse(byId("data").textContent);
	const count = data.frames.length / 3;
	const depth = i => data.frames[3 * i], nameOf = i => data.frames[3 * i + 1];
	const total = new Float64Array(count), left = new Float64Array(count);
	const end = new Int32Array(count); // of the frames below each
	let sum = 0, deepest = 0;

	(function layOut() {
		const open = []; // the frames above the current one
		const close = to => {
			while (open.length > to) {
				const i = open.pop();
				end[i] = open.after;
				if (open.length) total[open[open.length - 1]] += total[i];
				else sum += total[i];
			}
		};
		for (let i = 0; i < count; i++) {
			open.after = i;
			close(depth(i));
			total[i] = data.frames[3 * i + 2];
			open.push(i);
			deepest = Math.max(deepest, depth(i) + 1);
		}
		open.after = count;
		close(0);
		// A frame begins where its caller does, or where its left neighbour ends.
		const next = [0];
		for (let i = 0; i < count; i++) {
			const d = depth(i);
			left[i] = next[d];
			next[d] += total[i];
			next[d + 1] = left[i];
		}
	})();

	const time = ns => ns >= 1e9 ? (ns / 1e9).toPrecision(3) + " s" : ns >= 1e6 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e3).toPrecision(3) + " µs";
	const canvas = byId("canvas"), scroll = byId("scroll"), context = canvas.getContext("2d");
	let zoomed = -1, matches = null, hover = -1, drawn = [];

	function draw() {
		const width = scroll.clientWidth, height = scroll.clientHeight, dots = window.devicePixelRatio || 1;
		byId("spacer").style.height = Math.max(0, deepest * row - height) + "px";
		canvas.width = width * dots;
		canvas.height = height * dots;
		canvas.style.width = width + "px";
		canvas.style.height = height + "px";
		context.setTransform(dots, 0, 0, dots, 0, -scroll.scrollTop * dots);
		context.font = "12px monospace";
		context.textBaseline = "middle";
		const x0 = zoomed < 0 ? 0 : left[zoomed], w0 = (zoomed < 0 ? sum : total[zoomed]) || 1;
		drawn = [];
		for (let i = 0; i < count;) {
			const x = (left[i] - x0) / w0 * width, w = total[i] / w0 * width;
			// Passes over all that is beside the window or too narrow to be seen.
			if (x + w <= 0.01 || x >= width - 0.01 || w < 0.3) { i = end[i]; continue; }
			bar(i, Math.max(x, 0), Math.min(x + w, width) - Math.max(x, 0));
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

	function bar(i, x, w) {
		const y = depth(i) * row;
		if (y + row < scroll.scrollTop || y > scroll.scrollTop + scroll.clientHeight) return;
		drawn.push({ i, x, w, y });
		context.globalAlpha = zoomed >= 0 && depth(i) < depth(zoomed) ? 0.5 : 1;
		context.fillStyle = matches && matches[nameOf(i)] ? "#c05cf0" : data.colors[nameOf(i)];
		context.fillRect(x, y, Math.max(w - 0.5, 0.3), row - 1);
		if (i === hover) context.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 0), row - 2);
		const label = w < 12 ? "" : fit(data.names[nameOf(i)], w);
		if (label) {
			context.fillStyle = "#111";
			context.fillText(label, x + 3, y + row / 2);
		}
		context.globalAlpha = 1;
	}

	function at(event) {
		const box = canvas.getBoundingClientRect();
		const x = event.clientX - box.left, y = event.clientY - box.top + scroll.scrollTop;
		const hit = drawn.find(d => x >= d.x && x < d.x + d.w && y >= d.y && y < d.y + row);
		return hit ? hit.i : -1;
	}

	function zoom(i) {
		zoomed = i;
		byId("reset").disabled = i < 0;
		draw();
	}

	// search marks the frames whose name matches, and adds up the weight of those
	// below no other match.
	function search(term) {
		matches = null;
		byId("matched").textContent = "";
		if (term) {
			let re;
			try { re = new RegExp(term); }
			catch (e) { re = new RegExp(term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")); }
			matches = data.names.map(n => re.test(n));
			let found = 0;
			for (let i = 0; i < count;) {
				if (matches[nameOf(i)]) { found += total[i]; i = end[i]; } else i++;
			}
			byId("matched").textContent = "matched " + (100 * found / (sum || 1)).toFixed(1) + "%";
		}
		draw();
	}

	byId("title").textContent = "Flame graph, " + time(sum) + " of " + data.unit;
	canvas.addEventListener("click", e => { const i = at(e); if (i >= 0) zoom(i); });
	canvas.addEventListener("mousemove", e => {
		const i = at(e);
		if (i === hover) return;
		hover = i;
		byId("details").textContent = i < 0 ? "" : data.names[nameOf(i)] + " (" + time(total[i]) + ", "
			+ (100 * total[i] / sum).toFixed(2) + "%, itself " + time(data.frames[3 * i + 2]) + ")";
		draw();
	});
	byId("reset").addEventListener("click", () => zoom(-1));
	byId("search").addEventListener("input", e => search(e.target.value));
	scroll.addEventListener("scroll", draw);
	window.addEventListener("resize", draw);
	window.addEventListener("keydown", e => {
		if (e.key === "Escape") { byId("search").value = ""; search(""); zoom(-1); }
	});
	draw();
})();
