// A flag is found as it is typed. The search would take its dashes for "without this word".

"use strict";

document.querySelectorAll(".md-search__input").forEach((input) => {
  const value = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  Object.defineProperty(input, "value", {
    get: () => value.get.call(input).replace(/(^|\s)--(?=\w)/g, "$1"),
    set: (text) => value.set.call(input, text),
  });
});
