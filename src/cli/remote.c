#include "cli/remote.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/secret.h"
#include "cli/resource.h"

#define KEY_FILE_MAX 256
#define PAGE "limit=100"

/* PI_MANAGED_API_KEY, else the key that serve wrote when the data directory was new. */
static err find_key(struct remote *r, struct buf *out)
{
    const char *key = getenv("PI_MANAGED_API_KEY");
    char path[PATH_MAX];
    if (key && key[0]) {
        r->key_source = "PI_MANAGED_API_KEY";
        buf_add_c(out, key);
        return 0;
    }
    snprintf(path, sizeof path, "%s/first-key", option_value(r->call, "data"));
    err e = fd_read_file(path, KEY_FILE_MAX, out);
    if (e == E_NOT_FOUND)
        return fail(E_UNAUTHORIZED,
                    "no API key: set PI_MANAGED_API_KEY to the one that serve showed when it first "
                    "started, or make another with pi-managed key create (and %s does not exist). "
                    "No service yet? pi-managed serve starts one",
                    path);
    TRY(e);
    r->key_source = "the data directory's first-key";
    while (out->n && out->p[out->n - 1] == '\n')
        out->p[--out->n] = 0;
    return 0;
}

/* A word about an address beats curl's about a protocol. */
static err check_url(const char *url)
{
    if (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0)
        return 0;
    return fail(E_INVALID,
                "%.200s is no address of a service: give --url or PI_MANAGED_URL like "
                "http://127.0.0.1:7433",
                url);
}

static err open_and_work(struct remote *r, err (*work)(struct remote *r), struct buf *key)
{
    TRY(check_url(option_value(r->call, "url")));
    TRY(find_key(r, key));
    TRY(http_client_open(option_value(r->call, "url"), key->p, &r->http));
    http_client_trust(r->http, option_value(r->call, "ca-cert"));
    return work(r);
}

int remote_run(const struct invocation *call, err (*work)(struct remote *r))
{
    struct remote r = {.call = call};
    AUTO_BUF key = {0};
    err e = open_and_work(&r, work, &key);
    int status = e ? command_fail(call) : r.status;
    http_client_close(r.http);
    if (key.p)
        secret_wipe(key.p, key.cap);
    return status;
}

/* What to do about it is not in the answer. */
static err explain(struct remote *r, err e)
{
    if (e == E_UNAUTHORIZED)
        return fail(e, "%.300s. The key came from %s; pi-managed key create makes another",
                    err_text(), r->key_source);
    const struct resource *resource = r->call->command->resource;
    if (e == E_NOT_FOUND && resource && r->call->argument_count)
        return fail(e, "%.300s (pi-managed %s list shows what there is)", err_text(),
                    resource->noun);
    return e;
}

err remote_send(struct remote *r, const char *method, const char *path, json_t *take_body,
                json_t **out)
{
    AUTO_JSON body = take_body;
    AUTO_BUF text = {0};
    AUTO_BUF answer = {0};
    if (body)
        json_write(body, &text);
    err e =
        http_client_send(r->http, method, path, body ? buf_str(&text) : (struct str){0}, &answer);
    if (e)
        return explain(r, e);
    json_t *j = NULL;
    if (answer.n)
        TRY(json_read_log(buf_str(&answer), &j));
    if (out)
        *out = j;
    else
        json_decref(j);
    return 0;
}

err remote_get(struct remote *r, const char *path, json_t **out)
{
    TRY(remote_send(r, "GET", path, NULL, out));
    return *out ? 0 : fail(E_INTERNAL, "the service's answer to GET %s is empty", path);
}

void remote_escape(struct buf *out, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    for (; *text; text++) {
        if (strchr(plain, *text))
            buf_add_char(out, *text);
        else
            buf_printf(out, "%%%02X", (unsigned char)*text);
    }
}

/* Appends a page's rows to `all` (at most max in all); *out_cursor is the next page's or "". */
static err add_page(struct remote *r, const char *path, size_t max, json_t *all,
                    struct buf *out_cursor)
{
    AUTO_JSON page = NULL;
    TRY(remote_get(r, path, &page));
    const json_t *data = json_object_get(page, "data");
    if (r->on_page)
        r->on_page(page);
    for (size_t i = 0; i < json_array_size(data) && json_array_size(all) < max; i++)
        json_array_append(all, json_array_get(data, i));
    const char *next = json_get_c(page, "nextCursor");
    buf_clear(out_cursor);
    if (next && json_array_size(all) < max)
        remote_escape(out_cursor, next);
    return 0;
}

err remote_list(struct remote *r, const char *path, size_t max, json_t **out)
{
    AUTO_JSON all = json_array();
    AUTO_BUF cursor = {0};
    do {
        AUTO_BUF page = {0};
        buf_add_c(&page, path);
        if (strstr(path, "limit=") == NULL)
            buf_printf(&page, "%c" PAGE, strchr(path, '?') ? '&' : '?');
        if (cursor.n)
            buf_printf(&page, "&cursor=%s", cursor.p);
        TRY(add_page(r, page.p, max, all, &cursor));
    } while (cursor.n);
    *out = json_incref(all);
    return 0;
}

bool remote_json(const struct remote *r)
{
    return option_flag(r->call, "json");
}

void remote_print(const json_t *j)
{
    AUTO_BUF text = {0};
    json_write(j, &text);
    buf_add_char(&text, '\n');
    fwrite(text.p, 1, text.n, stdout);
    fflush(stdout); /* whoever reads a stream gets each line as it comes */
}
