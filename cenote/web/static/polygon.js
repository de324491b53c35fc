// Polygons [[x, y], ...] on the map of the index.
export const MAX_CORNERS = 64; // that /api/search accepts
const FLAT = 1e-5; // twice the area of a triangle that nobody sees

// By the even-odd rule, or on an edge, as in cenote/search/map.py.
export function isInside([x, y], polygon) {
  let inside = false;
  for (let i = 0; i < polygon.length; i++) {
    const [[x0, y0], [x1, y1]] = [polygon[i], polygon[(i + 1) % polygon.length]];
    const side = (x1 - x0) * (y - y0) - (x - x0) * (y1 - y0);
    if (side === 0 && (x0 - x) * (x1 - x) <= 0 && (y0 - y) * (y1 - y) <= 0) return true;
    if (y0 > y !== y1 > y && side > 0 === y1 > y0) inside = !inside;
  }
  return inside;
}

// Remove the corner whose triangle with its neighbours is smallest (Visvalingam and Whyatt) while it is flat or there are too many.
export function simplify(polygon, most) {
  const corners = [...polygon];
  while (corners.length > 3) {
    const areas = corners.map(([x, y], i) => {
      const [[x0, y0], [x1, y1]] = [corners.at(i - 1), corners[(i + 1) % corners.length]];
      return Math.abs((x0 - x) * (y1 - y) - (x1 - x) * (y0 - y));
    });
    const smallest = Math.min(...areas);
    if (corners.length <= most && smallest > FLAT) break;
    corners.splice(areas.indexOf(smallest), 1);
  }
  return corners;
}
