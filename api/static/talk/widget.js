// <script src="https://voice.example.com/widget.js" data-agent="AGENT_ID"></script> puts a button on a page. The rest
// comes as modules from where this file came from.
(() => {
  const script = document.currentScript;
  const server = new URL(script.src).origin;
  const put = async () => {
    const { Panel } = await import(`${server}/static/talk/panel.js`);
    await Panel.put(server, { ...script.dataset });
  };
  const body = new Promise((there) => {
    if (document.body) there();
    else addEventListener("DOMContentLoaded", there, { once: true });
  });
  body.then(put).catch((error) => console.error(`${script.src}: ${error.message}`));
})();
