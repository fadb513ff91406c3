#include "cli/http_client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/secret.h"

#define BODY_MAX (256u << 20)
#define CONNECT_TIMEOUT_S 10L
#define TIMEOUT_S 120L
#define KEY_MAX 256

struct http_client {
    CURL *curl;
    struct curl_slist *headers;
    char *base_url;
    char authorization[KEY_MAX];
};

err http_client_open(const char *base_url, const char *api_key, struct http_client **out)
{
    if (api_key && strlen(api_key) > KEY_MAX - 32)
        return fail(E_INVALID, "the API key is too long to be one");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return fail(E_INTERNAL, "libcurl does not start");
    struct http_client *c = mem_alloc(sizeof *c);
    c->curl = curl_easy_init();
    if (c->curl == NULL)
        abort();
    size_t n = strlen(base_url);
    c->base_url = mem_copy(base_url, n && base_url[n - 1] == '/' ? n - 1 : n);
    c->headers = curl_slist_append(NULL, "Accept: application/json, */*");
    if (api_key) {
        snprintf(c->authorization, sizeof c->authorization, "Authorization: Bearer %s", api_key);
        c->headers = curl_slist_append(c->headers, c->authorization);
    }
    *out = c;
    return 0;
}

void http_client_close(struct http_client *c)
{
    if (c == NULL)
        return;
    curl_easy_cleanup(c->curl);
    for (struct curl_slist *h = c->headers; h; h = h->next)
        secret_wipe(h->data, strlen(h->data));
    curl_slist_free_all(c->headers);
    secret_wipe(c->authorization, sizeof c->authorization);
    mem_free(c->base_url);
    mem_free(c);
}

static size_t take_body(char *p, size_t size, size_t n, void *arg)
{
    struct buf *body = arg;
    if (body->n + size * n > BODY_MAX)
        return 0; /* curl then fails with a write error */
    buf_add(body, p, size * n);
    return size * n;
}

static err status_error(long status, const struct buf *body)
{
    static const struct {
        long status;
        err e;
    } codes[] = {{401, E_UNAUTHORIZED}, {403, E_FORBIDDEN}, {404, E_NOT_FOUND}, {409, E_CONFLICT}};
    AUTO_JSON problem = NULL;
    const char *detail = NULL;
    if (json_read(buf_str(body), &problem) == 0)
        detail = json_get_c(problem, "detail");
    err e = status >= 500 ? E_UNAVAILABLE : E_INVALID;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].status == status)
            e = codes[i].e;
    }
    return fail(e, "the service answered %ld: %.400s", status,
                detail ? detail : "(no reason given)");
}

err http_client_get(struct http_client *c, const char *path, struct buf *out)
{
    AUTO_BUF url = {0};
    AUTO_BUF body = {0};
    buf_printf(&url, "%s%s", c->base_url, path);
    curl_easy_reset(c->curl);
    curl_easy_setopt(c->curl, CURLOPT_URL, url.p);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &body);
    CURLcode rc = curl_easy_perform(c->curl);
    if (rc != CURLE_OK)
        return fail(E_UNAVAILABLE,
                    "cannot reach %s: %s. Is the service running? PI_MANAGED_URL says "
                    "where it is",
                    c->base_url, curl_easy_strerror(rc));
    long status = 0;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299)
        return status_error(status, &body);
    buf_add_str(out, buf_str(&body));
    return 0;
}
