// Requests go to the address that the page came from, whatever `servers` says: a page may send nowhere else.
const here = (document) => ({ ...document, servers: [{ url: location.origin }] });

async function start() {
  const answer = await fetch("/openapi.json");
  window.viewer = SwaggerUIBundle({
    spec: here(await answer.json()),
    dom_id: "#viewer",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayOperationId: true,
    filter: true,
    persistAuthorization: false,
    tryItOutEnabled: true,
    validatorUrl: null,
  });
}

start();
