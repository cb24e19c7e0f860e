// Zoom and search in the flame graph that this script stands in. Every frame is
// a group of a title (first line: its name), a bar and a label.
(function () {
	"use strict";
	const left = 10, inner = 1180;
	const byId = id => document.getElementById(id);
	const frames = [...document.querySelectorAll("#frames > g")].map(g => {
		const rect = g.querySelector("rect");
		const title = g.querySelector("title").textContent;
		const end = title.lastIndexOf("\n");
		return {
			g, rect, text: g.querySelector("text"),
			name: title.slice(0, end), details: title.slice(end + 1),
			x: +rect.getAttribute("x"), w: +rect.getAttribute("width"), y: +rect.getAttribute("y"),
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
		f.rect.setAttribute("x", x);
		f.rect.setAttribute("width", w);
		f.text.setAttribute("x", x + 3);
		f.text.textContent = fit(f.name, w);
	}

	// zoom gives frame to, or all if it is null, the whole width. What it stands
	// on stays, across the whole width too; what is beside it goes.
	function zoom(to) {
		const x0 = to ? to.x : left, w0 = to ? to.w : inner, slack = 0.006;
		for (const f of frames) {
			const under = to && f.y > to.y && f.x <= x0 + slack && f.x + f.w >= x0 + w0 - slack;
			const inside = f.x >= x0 - slack && f.x + f.w <= x0 + w0 + slack && (!to || f.y <= to.y);
			f.g.classList.toggle("hidden", !under && !inside);
			f.g.classList.toggle("above", Boolean(under));
			if (under) place(f, left, inner);
			else if (inside) place(f, left + (f.x - x0) / w0 * inner, f.w / w0 * inner);
		}
		byId("reset").classList.toggle("hidden", !to);
	}

	// search marks the frames whose name matches, and adds up the width of those
	// that stand on no other match.
	function search(term) {
		let re = null;
		if (term) {
			try { re = new RegExp(term); }
			catch (e) { re = new RegExp(term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")); }
		}
		// Frames come root first, each followed by what stands on it.
		let sum = 0, y = -1;
		for (const f of frames) {
			const match = re !== null && re.test(f.name);
			f.g.classList.toggle("match", match);
			if (y >= 0 && f.y >= y) y = -1;
			if (match && y < 0) { sum += f.w; y = f.y; }
		}
		byId("matched").textContent = re ? "matched " + (100 * sum / inner).toFixed(1) + "%" : "";
	}

	for (const f of frames) {
		f.g.addEventListener("click", () => zoom(f));
		f.g.addEventListener("mouseover", () => { byId("details").textContent = f.name + " (" + f.details + ")"; });
		f.g.addEventListener("mouseout", () => { byId("details").textContent = ""; });
	}
	byId("reset").addEventListener("click", () => zoom(null));
	byId("search").addEventListener("click", () => search(prompt("Name or regular expression, empty for none:", "")));
	window.addEventListener("keydown", e => { if (e.key === "Escape") { zoom(null); search(""); } });
})();
