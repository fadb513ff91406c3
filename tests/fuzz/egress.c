/* sources: src/broker/dial.c src/broker/dial_url.c src/broker/dial_ranges.c src/broker/dial_resolve.c */
/* sources: src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c src/base/err.c src/base/str.c src/base/log.c */
/* sources: src/base/arena.c src/base/clock.c src/base/fd.c src/base/lock.c */
/* A request head from a sandbox in which an image is made: refused, or turned into one that the
   server reads as one request to the host that was judged. */
#include "../../src/broker/egress.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    AUTO_ARENA a = arena_new();
    struct egress_request r;
    struct str bytes = {(const char *)data, n};
    size_t head = egress_head_length(bytes);
    must(head <= n);
    if (head == 0 || egress_parse((struct str){bytes.p, head}, a, &r) != 0)
        return 0;
    must(r.url.host[0] && r.url.port > 0 && r.url.port < 65536);
    must(r.tunnel == (r.head.n == 0));
    if (r.tunnel)
        return 0;
    must(egress_head_length(r.head) == r.head.n);
    struct str rest = r.head;
    take_line(&rest);
    struct str host = take_line(&rest);
    must(str_starts(host, STR("Host: ")));
    for (size_t i = 0; i < r.head.n; i++)
        must((unsigned char)r.head.p[i] >= ' ' || strchr("\r\n\t", r.head.p[i]));
    /* Read again as a proxy would, it is the same. */
    egress_allows("deb.example.com,*.example.com,127.0.0.1:80", r.url.host, r.url.port);
    return 0;
}
