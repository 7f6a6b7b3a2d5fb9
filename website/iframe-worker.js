// Pages that are opened from disk may start no worker, and the search needs one: it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.worker = this;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.ready = new Promise(resolve => (frame.begin = resolve));
      this.scope.document.write(`<script>
        postMessage = data => frameElement.worker.dispatchEvent(new MessageEvent("message", {data}));
        importScripts = async (...urls) => {
          for (const src of urls.filter(url => typeof url === "string"))
            await new Promise(onload => document.head.append(Object.assign(document.createElement("script"), {src, onload})));
        };
      </script><script src="${url}" onload="frameElement.begin()"></script>`);
      this.scope.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
