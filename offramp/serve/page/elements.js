// Elements of the page. Texts are only ever set as text: nothing here, or elsewhere, reads HTML.

export function byId(id) {
  return document.getElementById(id);
}

/** A new element with classes and a text. */
export function element(name, { classes = "", text = "", ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text) made.textContent = text;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}

/** A share as per cent. */
export function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}
