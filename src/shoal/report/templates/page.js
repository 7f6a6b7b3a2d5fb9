(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const tip = document.getElementById('tip'), root = document.documentElement, theme = document.getElementById('theme');

  // ---- light and dark
  const night = matchMedia('(prefers-color-scheme: dark)');
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : night.matches;
  const label = () => { theme.textContent = dark() ? 'Light' : 'Dark'; };
  theme.addEventListener('click', () => { root.dataset.theme = dark() ? 'light' : 'dark'; label(); });
  night.addEventListener('change', label);
  label();

  // ---- sections that are closed until somebody wants them
  const closed = document.querySelectorAll('section > details');
  for (const link of document.querySelectorAll('nav a')) link.addEventListener('click', () => {
    const inside = document.querySelector(`${link.hash} > details > summary > h2`);
    if (inside) inside.closest('details').open = true;
  });
  addEventListener('beforeprint', () => { for (const section of closed) section.open = true; });

  // ---- the other axis
  for (const button of document.querySelectorAll('button.view')) button.addEventListener('click', () => {
    for (const plot of button.parentElement.querySelectorAll('.plot')) plot.hidden = !plot.hidden;
    button.setAttribute('aria-pressed', String(button.getAttribute('aria-pressed') !== 'true'));
  });

  // ---- tables that sort
  for (const button of document.querySelectorAll('.sortable th button')) button.addEventListener('click', () => {
    const head = button.parentElement, body = head.closest('table').tBodies[0], at = head.cellIndex;
    const down = head.getAttribute('aria-sort') !== 'descending';
    for (const other of head.parentElement.children) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const value = row => { const v = parseFloat(row.cells[at].dataset.v); return isNaN(v) ? (down ? -Infinity : Infinity) : v; };
    const order = (a, b) => value(a) - value(b) || a.cells[at].dataset.v.localeCompare(b.cells[at].dataset.v);  // of text
    body.append(...[...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)));
  });

  // ---- figures to save: as they look, and the numbers behind them
  const PAINT = ['fill', 'stroke', 'stroke-width', 'stroke-opacity', 'opacity', 'stroke-dasharray', 'stroke-linecap', 'stroke-linejoin', 'vector-effect'];
  function save(name, address) {
    const link = element('a');
    [link.href, link.download] = [address, name];
    link.click();
  }
  function drawing(plot) {  // as an image of its own
    const svg = plot.querySelector('svg').cloneNode(true), shown = plot.querySelectorAll('path'), of = plot.getBoundingClientRect();
    svg.querySelectorAll('path').forEach((path, i) => { for (const name of PAINT) path.style.setProperty(name, getComputedStyle(shown[i]).getPropertyValue(name)); });
    svg.setAttribute('width', of.width);
    svg.setAttribute('height', of.height);
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
    return new Promise(done => { image.onload = () => done(image); });
  }
  async function picture(figure, name) {
    const plots = [...figure.querySelectorAll('.plot:not([hidden])')], images = await Promise.all(plots.map(drawing));
    const boxes = plots.map(plot => plot.getBoundingClientRect()), keys = figure.querySelector('.legend')?.getBoundingClientRect(), whole = figure.getBoundingClientRect();
    const top = Math.min(...boxes.map(box => box.top - 44), keys ? keys.top - 12 : Infinity), bottom = Math.max(...boxes.map(box => box.bottom + 52), keys ? keys.bottom + 12 : 0);
    const canvas = element('canvas'), pen = canvas.getContext('2d');
    [canvas.width, canvas.height] = [2 * whole.width, 2 * (bottom - top)];
    pen.scale(2, 2);
    pen.fillStyle = getComputedStyle(figure).backgroundColor;
    pen.fillRect(0, 0, whole.width, bottom - top);
    pen.translate(-whole.left, -top);
    images.forEach((image, i) => pen.drawImage(image, boxes[i].left, boxes[i].top, boxes[i].width, boxes[i].height));
    for (const key of figure.querySelectorAll('.key')) {
      const box = key.getBoundingClientRect();
      pen.fillStyle = getComputedStyle(key).color;
      pen.fillRect(box.left, box.top, box.width, Math.max(2, box.height));
    }
    pen.textBaseline = 'middle';
    for (const word of figure.querySelectorAll('.plot:not([hidden]) .words i, .legend li, h4')) {
      if (!word.lastChild) continue;
      const range = document.createRange(), look = getComputedStyle(word);
      range.selectNodeContents(word.lastChild);
      const box = range.getBoundingClientRect(), lines = word.lastChild.textContent.trim().split('\n');
      [pen.font, pen.fillStyle] = [`${look.fontWeight} ${look.fontSize} ${look.fontFamily}`, look.color];
      if (box.width) lines.forEach((line, i) => pen.fillText(line, box.left, box.top + box.height * (i + .5) / lines.length));
    }
    save(`${name}.png`, canvas.toDataURL());
  }
  function numbers(table, name) {
    const quoted = cell => `"${cell.textContent.replaceAll('"', '""')}"`;
    const rows = [...table.rows].map(row => [...row.cells].map(quoted).join());
    save(`${name}.csv`, `data:text/csv;charset=utf-8,${encodeURIComponent(rows.join('\n'))}`);
  }
  for (const figure of document.querySelectorAll('figure:has(.plot, table)')) {
    const name = figure.querySelector('h3').textContent, table = figure.querySelector('table'), line = element('p', 'save');
    const ways = {PNG: figure.querySelector('.plot') && (() => picture(figure, name)), CSV: table && (() => numbers(table, name))};
    for (const [word, act] of Object.entries(ways).filter(([, act]) => act)) {
      const button = element('button', '', word);
      button.type = 'button';
      button.title = `Save this figure as ${word}`;
      button.addEventListener('click', act);
      line.append(button);
    }
    figure.insertBefore(line, figure.querySelector(':scope > details'));
  }
  if (!data.places) return;

  // ---- one member, found in every figure
  const marks = new Map();
  for (const mark of document.querySelectorAll('[data-m]'))
    marks.set(+mark.dataset.m, [...(marks.get(+mark.dataset.m) || []), mark]);
  let pointed = -1;
  function draw(mark, hot) {
    mark.classList.toggle('hot', hot);
    if (mark.tagName !== 'path') return;
    mark.treads ??= mark.getAttribute('d');  // among many members stairs have no risers; the one pointed at gets them
    mark.setAttribute('d', hot ? mark.treads.replace(/H(-?\d+)M\1 (-?\d+)/g, 'H$1V$2') : mark.treads);
  }
  function highlight(member) {
    if (member === pointed) return;
    for (const mark of marks.get(pointed) || []) draw(mark, false);
    for (const mark of marks.get(member) || []) draw(mark, true);
    root.classList.toggle('pointing', member >= 0);
    pointed = member;
  }
  for (const row of document.querySelectorAll('tr[data-m]')) {
    row.addEventListener('pointerenter', () => highlight(+row.dataset.m));
    row.addEventListener('pointerleave', () => highlight(-1));
  }

  // ---- what the axis of time is read as
  const axis = document.getElementById('axis');
  const along = [...document.querySelectorAll('[data-chart]')].filter(plot => JSON.parse(plot.dataset.chart).by !== 'generation');
  function relabel(name) {
    const [label, ticks] = data.axes[name];
    for (const plot of along) {
      const words = plot.querySelector('.words');
      for (const old of words.querySelectorAll('.x')) old.remove();
      ticks.forEach(([place, word], i) => {
        const made = element('i', i % 2 ? 'x minor' : 'x', word);
        made.style.left = `${100 * place}%`;
        words.append(made);
      });
      words.querySelector('.xt').textContent = label;
    }
    for (const button of axis.querySelectorAll('button')) button.setAttribute('aria-pressed', String(button.textContent === name));
  }
  if (Object.keys(data.axes).length > 1) {
    Object.keys(data.axes).forEach((name, at) => {  // the first is what was drawn
      const button = element('button', '', name);
      button.type = 'button';
      button.setAttribute('aria-pressed', String(at === 0));
      button.addEventListener('click', () => relabel(name));
      axis.append(button);
    });
    axis.hidden = false;
  }

  // ---- values under the cursor
  const count = {linear: v => v, log: Math.log10, one_minus_log: v => -Math.log10(1 - v), minus_log: v => -Math.log10(-v)};
  const text = v => v == null ? '–' : Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString('en')
    : v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(2) : String(+v.toPrecision(v > .9 && v < 1 ? 5 : 4));
  function element(name, kind, ...children) {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  }
  const line = (name, value, kind) => element('div', kind, element('span', '', name), element('span', '', value));

  for (const plot of document.querySelectorAll('[data-chart]')) {
    const chart = JSON.parse(plot.dataset.chart), values = data.members[chart.members];
    const places = chart.by !== 'generation' ? data.places
      : data.generations.map(g => (g - chart.x_low) / (chart.x_high - chart.x_low));
    const cursor = element('div', 'cursor'), point = element('div', 'point');
    const said = v => chart.words?.[v] ?? text(v);
    let column = places.length - 1, member = -1;

    const height = v => {
      if (v == null) return NaN;
      let at = count[chart.scale](v);
      if (chart.choices.length) at = chart.choices.reduce((best, c, i) => Math.abs(c - v) < Math.abs(chart.choices[best] - v) ? i : best, 0);
      return (at - chart.low) / (chart.high - chart.low);
    };
    const row = (m, c = column) => chart.heights ? chart.heights[c][m] ?? NaN : values ? height(values[m][c]) : NaN;

    function nearest(x) {
      if (chart.stairs) { const at = places.findIndex(p => p >= x - 1e-6); return at < 0 ? places.length - 1 : at; }
      return places.reduce((best, p, i) => Math.abs(p - x) < Math.abs(places[best] - x) ? i : best, 0);
    }
    function descent() {  // the dotted line back through a member's ancestors
      plot.querySelector('.trace')?.remove();
      if (!chart.heights || member < 0) return;
      let at = member, path = '', x = 0, y = 0;
      for (let c = column; c >= 0 && at >= 0; c--) {
        const left = Math.round(places[c] * 2000), top = Math.round((1 - row(at, c)) * 1000), half = (left + x) / 2;
        path += path ? `C${half} ${y} ${half} ${top} ${left} ${top}` : `M${left} ${top}`;
        [x, y, at] = [left, top, data.origin[c][at]];
      }
      const drawn = plot.querySelector('.grid').cloneNode();
      drawn.setAttribute('class', 'trace');
      drawn.setAttribute('d', path);
      plot.querySelector('svg').append(drawn);
    }
    function show(left, top) {
      const steps = data.steps[column];
      const lines = [element('strong', '', `Generation ${data.generations[column]}`)];
      if (steps != null) lines.push(line(data.steps_of, text(steps)));
      chart.names.forEach((name, i) => lines.push(line(name, said(chart.lines[i][column]))));
      if (member >= 0) {
        const who = `member ${data.uids[member]}`;
        lines.push(line(who, chart.heights ? '' : said(values[member][column]), 'own'));
        if (chart.heights) {
          lines.push(line('fitness', text(data.members.fitness[member][column])));
          if (data.founders[column][member] >= 0) lines.push(line('founder', `member ${data.uids[data.founders[column][member]]}`));
          const from = data.origin[column][member];
          if (from >= 0) lines.push(line('weights from', from === member ? 'itself' : `member ${data.uids[from]}`));
        }
      }
      tip.replaceChildren(...lines);
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(8, left + 18 + box.width > innerWidth - 8 ? left - 18 - box.width : left + 18)}px`;
      tip.style.top = `${Math.max(8, Math.min(top + 16, innerHeight - box.height - 8))}px`;
      cursor.style.left = `${100 * places[column]}%`;
      plot.append(cursor);
      const at = member >= 0 ? row(member) : NaN;
      if (at === at) { point.style.left = cursor.style.left; point.style.top = `${100 * (1 - at)}%`; plot.append(point); } else point.remove();
      highlight(member);
      descent();
    }
    function hide() {
      tip.hidden = true;
      cursor.remove(); point.remove();
      member = -1;
      highlight(-1);
      descent();
    }
    plot.addEventListener('pointermove', event => {
      const box = plot.getBoundingClientRect();
      column = nearest((event.clientX - box.left) / box.width);
      const y = 1 - (event.clientY - box.top) / box.height;
      member = -1;
      if (values || chart.heights) {
        let best = 26 / box.height;  // pixels within which a line counts as pointed at
        data.uids.forEach((_, m) => { const d = Math.abs(row(m) - y); if (d < best) { best = d; member = m; } });
      }
      show(event.clientX, event.clientY);
    });
    plot.addEventListener('pointerleave', hide);
    plot.addEventListener('blur', hide);
    plot.addEventListener('keydown', event => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], other = {ArrowUp: -1, ArrowDown: 1}[event.key];
      let tries = data.uids.length;
      if (event.key === 'Escape') return hide();
      if (step) column = Math.max(0, Math.min(places.length - 1, column + step));
      else if (other && (values || chart.heights)) {
        const count = data.uids.length;
        do member = (member + other + count) % count; while (isNaN(row(member)) && --tries);
      }
      else return;
      event.preventDefault();
      const box = plot.getBoundingClientRect();
      show(box.left + box.width * places[column], box.top + box.height / 3);
    });
  }
})();
