// An object about the page that is open; page_survey.py says what is wrong with it.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const isOpaque = (colour) => colour !== "none" && channels(colour)[3] === 255;
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const styleOf = (element) => getComputedStyle(element);
  const boxBehind = (text) => {
    const place = text.getBBox();
    const [x, y] = [place.x + place.width / 2, place.y + place.height / 2];
    const boxes = [...text.ownerSVGElement.querySelectorAll("rect")].filter((box) => {
      const {x: left, y: top, width, height} = box.getBBox();
      const isBefore = box.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
      const covers = left <= x && x <= left + width && top <= y && y <= top + height;
      return isBefore && covers && isOpaque(styleOf(box).fill);
    });
    return boxes.length ? styleOf(boxes.at(-1)).fill : null;
  };
  const groundOf = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = styleOf(at).backgroundColor;
      if (isOpaque(colour)) return colour;
    }
    return styleOf(document.documentElement).colorScheme === "dark" ? "black" : "white";
  };
  const isCut = (text) => {
    const place = text.getBBox(), {width, height} = text.ownerSVGElement.viewBox.baseVal;
    return place.x < 0 || place.y < 0 || place.x + place.width > width
      || place.y + place.height > height;
  };

  const isHidden = (text) => {
    const box = text.closest(".scroll");
    return box && text.getBoundingClientRect().right > box.getBoundingClientRect().right + 1;
  };

  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  const texts = {}, cut = [], wrapped = [], hidden = [];
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = words.nextNode(); node; node = words.nextNode()) {
    const element = node.parentElement, said = node.data.trim();
    if (!said || element.tagName === "title" || !element.checkVisibility()) continue;
    const isDrawn = element instanceof SVGElement;
    if (isDrawn && isCut(element)) cut.push(said);
    if (isDrawn && isHidden(element)) hidden.push(said);
    const ink = isDrawn ? styleOf(element).fill : styleOf(element).color;
    const ground = (isDrawn && boxBehind(element)) || groundOf(element);
    texts[`${ink} on ${ground}`] ??= {contrast: contrast(ink, ground), text: said};
  }
  for (const box of document.querySelectorAll("pre.command")) {
    if (box.scrollWidth > box.clientWidth) cut.push(box.textContent);
  }
  for (const head of document.querySelectorAll("table.grid tr:first-child th")) {
    if (!head.checkVisibility()) continue;
    const words = document.createRange();
    words.selectNodeContents(head);
    const lines = new Set([...words.getClientRects()].map((line) => Math.round(line.top)));
    if (lines.size > 1) wrapped.push(head.textContent);
  }
  const strokes = (selector) => [...document.querySelectorAll(selector)]
    .filter((path) => path.checkVisibility() && path.getTotalLength() > 0)
    .map((path) => channels(styleOf(path).stroke).slice(0, 3));
  return {
    pageWidth: document.documentElement.scrollWidth,
    ground: channels(groundOf(document.body)).slice(0, 3),
    texts: Object.entries(texts).map(([colours, told]) => ({colours, ...told})),
    cut,
    wrapped,
    hidden,
    crosses: strokes("svg path.violation"),
    wrongTransfers: strokes("svg path.arrow.wrong"),
  };
})()
