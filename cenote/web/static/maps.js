// Computations on maps: objects at a threshold, outline, patches, agreement of two maps.

// Threshold scores of 0 to 255 as the server does, relative to the highest score.
export function foreground({ values }, threshold) {
  const cut = Math.floor(threshold * values.reduce((a, b) => Math.max(a, b), 0));
  return values.map((value) => value > cut);
}

// The box of the largest object (8-connected), relative to width and height; null if there is none.
export function largestBox(scores, threshold) {
  const { side } = scores;
  const inside = foreground(scores, threshold);
  const seen = new Uint8Array(side * side);
  let best = null;
  for (let start = 0; start < inside.length; start++) {
    if (!inside[start] || seen[start]) continue;
    const waiting = [start];
    const object = { cells: 0, x0: side, y0: side, x1: 0, y1: 0 };
    seen[start] = 1;
    while (waiting.length) {
      const at = waiting.pop();
      const [x, y] = [at % side, Math.floor(at / side)];
      object.cells += 1;
      object.x0 = Math.min(object.x0, x);
      object.y0 = Math.min(object.y0, y);
      object.x1 = Math.max(object.x1, x + 1);
      object.y1 = Math.max(object.y1, y + 1);
      for (let v = Math.max(y - 1, 0); v <= Math.min(y + 1, side - 1); v++) {
        for (let u = Math.max(x - 1, 0); u <= Math.min(x + 1, side - 1); u++) {
          const next = v * side + u;
          if (inside[next] && !seen[next]) ((seen[next] = 1), waiting.push(next));
        }
      }
    }
    if (!best || object.cells > best.cells) best = object;
  }
  return best && { x0: best.x0 / side, y0: best.y0 / side, x1: best.x1 / side, y1: best.y1 / side };
}

// Marching squares between the centres of cells, padded with zeros: relative segments [x, y, x, y].
export function outline({ side, values }, threshold) {
  const top = values.reduce((a, b) => Math.max(a, b), 0);
  const cut = Math.floor(threshold * top) + 0.5;
  const at = (x, y) => (x < 0 || y < 0 || x >= side || y >= side ? 0 : values[y * side + x]);
  const place = (cell) => Math.min(Math.max((cell + 0.5) / side, 0), 1);
  const lines = [];
  for (let y = -1; y < side; y++) {
    for (let x = -1; x < side; x++) {
      const [a, b, c, d] = [at(x, y), at(x + 1, y), at(x + 1, y + 1), at(x, y + 1)];
      const sign = (a > cut) + 2 * (b > cut) + 4 * (c > cut) + 8 * (d > cut);
      if (sign === 0 || sign === 15) continue;
      const between = (p, q) => (cut - p) / (q - p);
      const edges = [
        () => [place(x + between(a, b)), place(y)],
        () => [place(x + 1), place(y + between(b, c))],
        () => [place(x + between(d, c)), place(y + 1)],
        () => [place(x), place(y + between(a, d))],
      ];
      for (const [from, to] of SEGMENTS[sign]) lines.push([...edges[from](), ...edges[to]()]);
    }
  }
  return lines;
}

const SEGMENTS = [
  [], [[3, 0]], [[0, 1]], [[3, 1]], [[1, 2]], [[3, 2], [0, 1]], [[0, 2]], [[3, 2]],
  [[2, 3]], [[0, 2]], [[0, 3], [1, 2]], [[1, 2]], [[1, 3]], [[0, 1]], [[0, 3]], [],
];

// The weight of one patch, relative to uniform weights, and its rank.
export function cellOf({ rows, columns, weights }, row, column) {
  const share = weights[row][column];
  const flat = weights.flat();
  const place = 1 + flat.filter((other) => other > share).length;
  return { share, times: share * rows * columns, place, of: flat.length };
}

export function highest({ weights }) {
  let best = [0, 0];
  weights.forEach((line, y) => line.forEach((share, x) => {
    if (share > weights[best[0]][best[1]]) best = [y, x];
  }));
  return best;
}

// The overlap of two maps: sum of min(a, b) on the finer grid of the two. 1 for equal maps.
export function agreement(first, second) {
  const rows = Math.max(first.rows, second.rows);
  const columns = Math.max(first.columns, second.columns);
  const [a, b] = [first, second].map((map) => spread(map, rows, columns));
  return a.reduce((sum, line, y) => sum + line.reduce((some, share, x) => some + Math.min(share, b[y][x]), 0), 0);
}

// Resample a map to another grid, keeping its sum: each cell is spread evenly over its area.
function spread({ rows, columns, weights }, toRows, toColumns) {
  const down = shares(rows, toRows);
  const across = shares(columns, toColumns);
  const wide = weights.map((line) => across.map((from) => from.reduce((sum, s, i) => sum + s * line[i], 0)));
  return down.map((from) => across.map((_, x) => from.reduce((sum, s, i) => sum + s * wide[i][x], 0)));
}

// [to][from]: the fraction of each of `many` cells that is inside each of `into` cells.
function shares(many, into) {
  return Array.from({ length: into }, (_, to) => Array.from({ length: many }, (_, from) => {
    const overlap = Math.min((to + 1) / into, (from + 1) / many) - Math.max(to / into, from / many);
    return Math.max(overlap, 0) * many;
  }));
}
