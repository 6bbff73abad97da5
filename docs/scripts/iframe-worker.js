// Browsers start no worker for a page that is opened from the disk, so its search would find nothing: there, the
// worker's script runs in a hidden frame. Served pages have real workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => this.#deliver(this, data);
      const script = inside.document.createElement("script");
      this.#ready = new Promise((resolve) => { script.onload = () => resolve(inside); });
      script.src = new URL(url, location.href);
      inside.document.body.append(script);
    }

    #deliver(target, data) {
      target.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(data) {
      this.#ready.then((inside) => this.#deliver(inside, data));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
