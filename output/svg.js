// Zoom and search in the flame graph that this script stands in. Every frame is
// a group of a title (first line: its name), a bar and a label.
(function () {
	"use strict";
	const margin = 10, drawn = 1180; // as the frames are drawn in the file
	const byId = id => document.getElementById(id), root = document.documentElement;
	let inner = drawn, zoomed = null;
	const frames = [...document.querySelectorAll("#frames > g")].map(g => {
		const rect = g.querySelector("rect");
		const title = g.querySelector("title").textContent;
		const end = title.lastIndexOf("\n");
		return {
			g, rect, text: g.querySelector("text"),
			name: title.slice(0, end), details: title.slice(end + 1),
			x: (+rect.getAttribute("x") - margin) / drawn, w: +rect.getAttribute("width") / drawn, y: +rect.getAttribute("y"),
		};
	});

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

	function place(f, x, w) {
		f.rect.setAttribute("x", margin + x * inner);
		f.rect.setAttribute("width", w * inner);
		f.text.setAttribute("x", margin + x * inner + 3);
		f.text.textContent = fit(f.name, w * inner);
	}

	// zoom gives frame to, or all if it is null, the whole width. What it stands
	// on stays, across the whole width too; what is beside it goes.
	function zoom(to) {
		zoomed = to;
		const x0 = to ? to.x : 0, w0 = to ? to.w : 1, slack = 0.000005;
		for (const f of frames) {
			const under = to && f.y > to.y && f.x <= x0 + slack && f.x + f.w >= x0 + w0 - slack;
			const inside = f.x >= x0 - slack && f.x + f.w <= x0 + w0 + slack && (!to || f.y <= to.y);
			f.g.classList.toggle("hidden", !under && !inside);
			f.g.classList.toggle("above", Boolean(under));
			if (under) place(f, 0, 1);
			else if (inside) place(f, (f.x - x0) / w0, f.w / w0);
		}
		byId("reset").classList.toggle("hidden", !to);
	}

	// search marks the frames whose name matches, and adds up the width of those
	// that stand on no other match.
	function search(term) {
		let re = null;
		if (term) {
			try { re = new RegExp(term, "i"); }
			catch (e) { re = new RegExp(term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"); }
		}
		// Frames come root first, each followed by what stands on it.
		let sum = 0, y = -1;
		for (const f of frames) {
			const match = re !== null && re.test(f.name);
			f.g.classList.toggle("match", match);
			if (y >= 0 && f.y >= y) y = -1;
			if (match && y < 0) { sum += f.w; y = f.y; }
		}
		byId("matched").textContent = re ? "matched " + (100 * sum).toFixed(1) + "%" : "";
	}

	// resize has the picture fill its window, instead of being scaled to it.
	function resize() {
		const width = Math.max(window.innerWidth, 200), middle = width / 2;
		inner = width - 2 * margin;
		root.removeAttribute("viewBox");
		root.setAttribute("width", "100%");
		for (const h of heading) {
			h.at.setAttribute("x", middle);
			h.at.textContent = fit(h.text, inner * 7.25 / h.letter);
		}
		legend.classList.toggle("hidden", legend.children.length > 0 && legend.lastElementChild.textContent.length * 7.25 + +legend.lastElementChild.getAttribute("x") > width - margin - 190);
		byId("left")?.setAttribute("x", width - margin);
		byId("matched").setAttribute("x", width - margin - 190);
		field.setAttribute("x", width - margin - 180);
		zoom(zoomed);
	}

	const heading = [["title", 10.3], ["run", 7.25]].map(([id, letter]) => ({ at: byId(id), text: byId(id).textContent, letter }));
	const legend = byId("legend");
	const field = document.createElementNS(root.namespaceURI, "foreignObject");
	const input = document.createElementNS("http://www.w3.org/1999/xhtml", "input");
	for (const [k, v] of [["y", 44], ["width", 180], ["height", 24]]) field.setAttribute(k, v);
	for (const [k, v] of [["id", "search"], ["type", "search"], ["placeholder", "search ( / )"], ["aria-label", "search"], ["style", "width: 170px; font: 12px monospace"]]) input.setAttribute(k, v);
	field.appendChild(input);
	root.appendChild(field);
	input.addEventListener("input", () => search(input.value));
	for (const f of frames) {
		f.g.addEventListener("click", () => zoom(f));
		f.g.addEventListener("mouseover", () => { byId("details").textContent = f.name + " (" + f.details + ")"; });
		f.g.addEventListener("mouseout", () => { byId("details").textContent = ""; });
	}
	byId("reset").addEventListener("click", () => zoom(null));
	window.addEventListener("keydown", e => {
		if (e.key === "Escape") { input.value = ""; input.blur(); zoom(null); search(""); }
		if (e.key === "/" && e.target !== input) { e.preventDefault(); input.focus(); }
	});
	window.addEventListener("resize", resize);
	resize();
})();
