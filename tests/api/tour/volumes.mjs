// Volumes, once around.
export default async function tour({ service }) {
    const make = (name, headers) => service.ok("POST", "/v1/volumes", { name }, { headers });
    const [first] = [await make("tour-1", { "idempotency-key": "tour-volume" }), await make("tour-2")];
    const { nextCursor } = await service.ok("GET", "/v1/volumes?limit=1&order=asc");
    await service.ok("GET", `/v1/volumes?limit=1&order=asc&cursor=${nextCursor}`);
    await service.ok("GET", "/v1/volumes?name=tour-2");
    await service.ok("GET", `/v1/volumes/${first.id}`);
    await service.ok("DELETE", `/v1/volumes/${first.id}`);
}
