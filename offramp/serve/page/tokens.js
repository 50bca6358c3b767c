// Which part of an answer's text each token is.

/**
 * Lays tokens over the text that the server sends: the text is right, the tokens' bytes say where each ends.
 *
 * A piece is a string and the indices of the tokens that make it: several where a character took several. Text that no
 * tokens fit to is a piece of none. Tokens behind the text, such as the one that ends an answer, have no piece.
 */
export class Pieces {
  constructor() {
    this.tokens = []; // { text, logprob }
    this.text = "";
    this._decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this._waiting = []; // [text, indices] of whole characters, whose text has not come yet
    this._open = []; // indices of tokens of a character that has begun
    this._place = 0; // where the text goes on that has no piece yet
    this._fits = true;
  }

  /** New text, and new tokens as `logprobs.content` has them; returns new pieces. */
  add(text, tokens) {
    this.text += text;
    for (const token of tokens) {
      const piece = this._decoder.decode(new Uint8Array(token.bytes), { stream: true });
      this._open.push(this.tokens.push({ text: token.token, logprob: token.logprob }) - 1);
      if (piece) this._waiting.push([piece, this._open.splice(0)]);
    }
    return this._laid();
  }

  /** What is left when the answer has ended: text without tokens. */
  finish() {
    const rest = this.text.slice(this._place);
    this._place = this.text.length;
    return rest ? [{ text: rest, tokens: [] }] : [];
  }

  _laid() {
    const pieces = [];
    while (this._fits && this._waiting.length) {
      let [piece, tokens] = this._waiting[0];
      const here = this.text.slice(this._place);
      if (this._place === 0 && piece[0] === " " && here && here[0] !== " ") piece = piece.slice(1); // a word's mark
      if (!here.startsWith(piece)) {
        this._fits = piece.startsWith(here); // else the rest has not come yet
        break;
      }
      this._waiting.shift();
      this._place += piece.length;
      pieces.push({ text: piece, tokens });
    }
    return this._fits ? pieces : [...pieces, ...this.finish()];
  }
}
