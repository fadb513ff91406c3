/* The one reading of a URL that the broker checks, resolves and connects by (protocols facts §11):
   no other parser sees the text, so none can understand it differently. Pure functions; results
   live in the caller's arena. */
#ifndef BROKER_DIAL_URL_H
#define BROKER_DIAL_URL_H

#include "base/err.h"
#include "base/str.h"

struct arena;

#define DIAL_HOST_MAX 253

struct dial_url {
    const char *scheme; /* "https" or "http" */
    const char *host;   /* lower case ASCII; an IPv6 literal without its brackets */
    int port;
    const char *path; /* with query, without fragment; "/" when empty */
};

/* E_INVALID (code invalid_url) before anything is resolved: control characters, blanks, backslash,
   userinfo, zone ids, percent signs in the host, odd number literals (127.1, 0x7f000001), trailing
   dots, schemes other than http(s), bytes that are not UTF-8. A host beyond ASCII is taken by IDNA
   (UTS 46) and judged by what it becomes; such characters in the path are percent-encoded. */
err dial_parse(struct str url, struct arena *a, struct dial_url *out);
/* Where a redirect from `base` with this Location leads, not yet judged. E_INVALID as above;
   E_FORBIDDEN (code address_not_allowed) for one from https to plain http. Whoever follows drops
   credentials when dial_same_origin() is false, and counts its hops (DIAL_HOPS_MAX). */
err dial_join(const struct dial_url *base, struct str location, struct arena *a,
              struct dial_url *out);
#define DIAL_HOPS_MAX 5
/* True for two URLs of one origin: scheme, host and port (R4a). */
bool dial_same_origin(const struct dial_url *a, const struct dial_url *b);
/* As text again; dial_parse() reads it as the same. */
const char *dial_text(const struct dial_url *u, struct arena *a);
/* Splits HOST or HOST:PORT, brackets of IPv6 taken off; *out_port is 0 without one. */
bool dial_split_host(struct str text, struct str *out_host, int *out_port);

#endif
