// The sliders over the maps. A veil holds 1 - value in its alpha; filters of the page turn that into what is seen.
{
  const steps = 101;
  const table = (value) => Array.from({ length: steps }, (_, i) => value(i / (steps - 1))).join(" ");
  for (const maps of document.querySelectorAll(".maps")) {
    const name = maps.dataset.filters, controls = maps.querySelector(".controls");
    const [opacity, cut] = controls.querySelectorAll("input[type=range]");
    const part = (id) => document.getElementById(`${name}-${id}-filter`).querySelector("feFuncA");
    const show = () => {
      const t = cut.value / 100, heat = controls.querySelector("input[value=heat]").checked;
      const below = (value) => t > 0 && value < t;
      if (heat) {
        part("heat").setAttribute("type", t > 0 ? "discrete" : "table");
        part("heat").setAttribute("tableValues", t > 0 ? table((v) => (below(v) ? 0 : 0.45 + v / 2)) : "0.45 0.95");
      } else {
        part("cut").setAttribute("tableValues", table((alpha) => (below(1 - alpha) ? 1 : 0)));
      }
      maps.style.setProperty("--opacity", opacity.value / 100);
      maps.style.setProperty("--veil", heat ? `url(#${name}-heat-filter)` : t > 0 ? `url(#${name}-cut-filter)` : "none");
      opacity.nextElementSibling.value = `${opacity.value}%`;
      cut.nextElementSibling.value = t > 0 ? t.toFixed(2) : "off";
      cut.setAttribute("aria-valuetext", cut.nextElementSibling.value);
    };
    controls.addEventListener("input", show);
    show(); // a reload keeps the sliders where they were
    controls.hidden = false;
  }
}
