/* src/parent: the data directory, the listening socket, the vault key, environment keys, request
 * checks. */
#include "parent/credentials.h"
#include "parent/data.h"
#include "parent/listen.h"
#include "parent/makers.h"
#include "parent/vault_key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/secret.h"

#include <cmocka.h>
#undef fail /* ours */

#define TENANT "tenant_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define SESSION "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"

struct fixture {
    char dir[64];
};

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/pm-parts-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    mem_free(f);
    return 0;
}

static mode_t mode_of(const char *dir, const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/data/%s", dir, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void open_data(struct fixture *f, struct data_dir *out)
{
    char path[128];
    snprintf(path, sizeof path, "%s/data", f->dir);
    assert_int_equal(data_open(path, geteuid(), out), 0);
}

static void a_new_data_directory_gets_its_folders_and_modes(void **state)
{
    struct fixture *f = *state;
    struct data_dir d;
    open_data(f, &d);
    assert_true(d.fresh);
    assert_int_equal(mode_of(f->dir, "."), 0700);
    assert_int_equal(mode_of(f->dir, "keys"), 0700);
    assert_int_equal(mode_of(f->dir, "logs"), 0700);
    assert_int_equal(mode_of(f->dir, "sandboxes"), 0711);
    data_close(&d);
}

static void loose_modes_are_mended_at_the_next_start(void **state)
{
    struct fixture *f = *state;
    struct data_dir d;
    char path[128];
    open_data(f, &d);
    data_close(&d);
    snprintf(path, sizeof path, "%s/data/keys", f->dir);
    assert_int_equal(chmod(path, 0755), 0);
    open_data(f, &d);
    assert_int_equal(mode_of(f->dir, "keys"), 0700);
    data_close(&d);
}

static void only_one_service_may_hold_a_data_directory(void **state)
{
    struct fixture *f = *state;
    struct data_dir first, second;
    char path[128];
    open_data(f, &first);
    snprintf(path, sizeof path, "%s/data", f->dir);
    assert_int_equal(data_open(path, geteuid(), &second), E_CONFLICT);
    assert_non_null(strstr(err_text(), path));
    data_close(&first);
    open_data(f, &second);
    data_close(&second);
}

static void a_link_in_place_of_a_data_file_is_refused(void **state)
{
    struct fixture *f = *state;
    struct data_dir d;
    char path[128];
    open_data(f, &d);
    data_close(&d);
    snprintf(path, sizeof path, "%s/data/control.db", f->dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/data", f->dir);
    assert_int_not_equal(data_open(path, geteuid(), &d), 0);
}

static void a_key_stays_the_same_over_restarts(void **state)
{
    struct fixture *f = *state;
    struct data_dir d;
    unsigned char first[32], again[32];
    open_data(f, &d);
    assert_int_equal(data_key(&d, "control.key", first, sizeof first), 0);
    assert_int_equal(data_key(&d, "control.key", again, sizeof again), 0);
    assert_memory_equal(first, again, sizeof first);
    assert_int_equal(mode_of(f->dir, "keys/control.key"), 0600);
    data_close(&d);
}

static void a_long_path_gets_a_short_name_for_sockets(void **state)
{
    struct fixture *f = *state;
    struct data_dir d;
    char path[256], shorter[108];
    snprintf(path, sizeof path, "%s/%0100d/data", f->dir, 7);
    assert_int_equal(data_open(path, geteuid(), &d), 0);
    assert_int_equal(data_short_path(&d, shorter, sizeof shorter), 0);
    assert_true(strlen(shorter) < 54);
    char there[PATH_MAX];
    assert_non_null(realpath(shorter, there));
    assert_string_equal(there, d.path);
    unlink(shorter);
    data_close(&d);
}

/* Listening */

static void off_loopback_needs_tls_or_a_word(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool tls, insecure;
        err e;
    } cases[] = {
        {"127.0.0.1:0", false, false, 0},
        {"localhost:0", false, false, 0},
        {"127.9.9.9:0", false, false, 0},
        {"0.0.0.0:0", false, false, E_FORBIDDEN},
        {"0.0.0.0:0", true, false, 0},
        {"0.0.0.0:0", false, true, 0},
        {"[::]:0", false, false, E_FORBIDDEN},
        {"127.0.0.1", false, false, E_INVALID},
        {"127.0.0.1:65536", false, false, E_INVALID},
        {"127.0.0.1:-1", false, false, E_INVALID},
        {":7433", false, false, E_INVALID},
        {"example.com:80", false, true, E_INVALID},
        {"::1:0", false, false, E_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_FD fd = -1;
        char url[64];
        err e =
            listen_open(cases[i].address, cases[i].tls, cases[i].insecure, &fd, url, sizeof url);
        if (e != cases[i].e)
            print_error("%s: %s\n", cases[i].address, err_text());
        assert_int_equal(e, cases[i].e);
        assert_true(e ? fd == -1 : fd >= 0);
    }
}

static void port_0_gives_the_real_port_in_the_url(void **state)
{
    (void)state;
    AUTO_FD fd = -1;
    char url[64];
    unsigned port;
    assert_int_equal(listen_open("127.0.0.1:0", true, false, &fd, url, sizeof url), 0);
    assert_int_equal(sscanf(url, "https://127.0.0.1:%u", &port), 1);
    assert_int_not_equal(port, 0);
}

/* The vault */

static struct vault_key *open_vault(struct fixture *f)
{
    char path[128];
    struct vault_key *k = NULL;
    snprintf(path, sizeof path, "%s/vault.key", f->dir);
    assert_int_equal(vault_key_open(path, &k), 0);
    return k;
}

static void what_is_sealed_opens_with_the_same_key_only(void **state)
{
    struct fixture *f = *state;
    struct vault_key *k = open_vault(f);
    AUTO_BUF sealed = {0};
    AUTO_JSON contents = json_pack("{s:s}", "secret", "hunter2");
    assert_int_equal(vault_seal(vault_key_public(k), contents, &sealed), 0);
    assert_null(memmem(sealed.p, sealed.n, "hunter2", 7));
    vault_key_free(k);
    k = open_vault(f); /* from the file */
    AUTO_SECRET plain = NULL;
    assert_int_equal(vault_open(k, buf_str(&sealed), &plain), 0);
    assert_string_equal(secret_bytes(plain).p, "{\"secret\":\"hunter2\"}");
    sealed.p[sealed.n - 1] ^= 1;
    AUTO_SECRET changed = NULL;
    assert_int_equal(vault_open(k, buf_str(&sealed), &changed), E_INVALID);
    assert_int_equal(vault_open(k, STR("short"), &changed), E_INVALID);
    vault_key_free(k);
}

static void a_vault_key_others_can_read_is_refused(void **state)
{
    struct fixture *f = *state;
    char path[128];
    vault_key_free(open_vault(f));
    snprintf(path, sizeof path, "%s/vault.key", f->dir);
    assert_int_equal(chmod(path, 0644), 0);
    struct vault_key *k = NULL;
    assert_int_equal(vault_key_open(path, &k), E_INVALID);
    assert_non_null(strstr(err_text(), "chmod 600"));
}

static void a_damaged_vault_key_is_not_replaced(void **state)
{
    struct fixture *f = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/vault.key", f->dir);
    assert_int_equal(fd_write_file_atomic(path, STR("not hex\n"), 0600), 0);
    struct vault_key *k = NULL;
    assert_int_equal(vault_key_open(path, &k), E_INVALID);
    AUTO_BUF text = {0};
    assert_int_equal(fd_read_file(path, 100, &text), 0);
    assert_string_equal(text.p, "not hex\n");
}

static void environment_keys_are_sealed_for_the_tenant_and_wiped(void **state)
{
    struct fixture *f = *state;
    struct vault_key *k = open_vault(f);
    struct environment_key *keys = mem_alloc(ENVIRONMENT_KEYS_MAX * sizeof *keys);
    size_t n, ignored;
    setenv("OPENAI_API_KEY", "sk-secret", 1);
    char *value = getenv("OPENAI_API_KEY");
    assert_int_equal(credentials_take(vault_key_public(k), TENANT, 0, keys, &n, &ignored), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ignored, 0);
    assert_string_equal(keys[0].provider, "openai");
    assert_null(getenv("OPENAI_API_KEY"));
    assert_int_equal(value[0], 0);
    struct parent_credential ask = {.session = SESSION, .length = keys[0].length}, reply = {0};
    memcpy(ask.data, keys[0].sealed, keys[0].length);
    assert_int_equal(credentials_open(k, &ask, &reply), 0);
    AUTO_JSON j = NULL;
    assert_int_equal(json_read((struct str){(char *)reply.data, reply.length}, &j), 0);
    assert_string_equal(json_get_c(j, "tenant"), TENANT);
    assert_string_equal(json_get_c(j, "secret"), "sk-secret");
    assert_string_equal(json_get_c(j, "kind"), "model_provider_key");
    snprintf(ask.session, sizeof ask.session, "%s", json_get_c(j, "id")); /* to be tried */
    assert_int_equal(credentials_open(k, &ask, &reply), 0);
    assert_string_equal(reply.session, ask.session);
    mem_free(keys);
    vault_key_free(k);
}

static void with_several_tenants_environment_keys_are_only_wiped(void **state)
{
    struct fixture *f = *state;
    struct vault_key *k = open_vault(f);
    struct environment_key *keys = mem_alloc(ENVIRONMENT_KEYS_MAX * sizeof *keys);
    size_t n, ignored;
    setenv("ANTHROPIC_API_KEY", "sk-secret", 1);
    assert_int_equal(credentials_take(vault_key_public(k), "", 0, keys, &n, &ignored), 0);
    assert_int_equal(n, 0);
    assert_int_equal(ignored, 1);
    assert_null(getenv("ANTHROPIC_API_KEY"));
    mem_free(keys);
    vault_key_free(k);
}

static void a_credential_is_opened_for_a_session_only(void **state)
{
    struct fixture *f = *state;
    struct vault_key *k = open_vault(f);
    struct parent_credential ask = {.session = "tenant_x", .length = 10}, reply;
    assert_int_equal(credentials_open(k, &ask, &reply), E_INVALID);
    memset(ask.session, 'A', sizeof ask.session); /* no end */
    assert_int_equal(credentials_open(k, &ask, &reply), E_INVALID);
    snprintf(ask.session, sizeof ask.session, SESSION);
    ask.length = PARENT_SEALED_MAX + 1;
    assert_int_equal(credentials_open(k, &ask, &reply), E_INVALID);
    vault_key_free(k);
}

/* Sandbox requests */

static struct sandbox_spec good_spec(void)
{
    return (struct sandbox_spec){.id = SESSION, .tenant = TENANT, .image = "host"};
}

static void every_field_of_a_sandbox_request_is_checked(void **state)
{
    (void)state;
    struct sandbox_spec s = good_spec();
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &s), 0);
    snprintf(s.id, sizeof s.id, "sess_../../../etc/passwd");
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &s), E_INVALID);
    assert_int_equal(makers_check(PARENT_SANDBOX_DESTROY, &s), E_INVALID);
    s = good_spec();
    memset(s.id, 'A', sizeof s.id);
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &s), E_INVALID);
    s = good_spec();
    s.tenant[0] = 0;
    assert_int_equal(makers_check(PARENT_SANDBOX_START, &s), E_INVALID);
    assert_int_equal(makers_check(PARENT_SANDBOX_STOP, &s), 0);
    s = good_spec();
    snprintf(s.image, sizeof s.image, "a\nb");
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &s), E_INVALID);
    s = good_spec();
    memset(s.image, 'a', sizeof s.image);
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &s), E_INVALID);
    s = good_spec();
    s.memory_mib = UINT32_MAX;
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &s), E_INVALID);
}

static void copies_are_checked_on_both_sides(void **state)
{
    (void)state;
    struct parent_message m = {.verb = PARENT_SANDBOX_FORK, .sandbox.spec = good_spec()};
    static const char snapshot[] = "snap_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    snprintf(m.sandbox.from, ID_MAX, "%s", snapshot);
    assert_int_equal(makers_check_message(&m), 0);
    m.sandbox.spec.image[0] = 0; /* that of the other */
    assert_int_equal(makers_check_message(&m), 0);
    snprintf(m.sandbox.from, ID_MAX, "%s", m.sandbox.spec.id);
    assert_int_equal(makers_check_message(&m), E_INVALID);
    snprintf(m.sandbox.spec.id, ID_MAX, "%s", snapshot);
    assert_int_equal(makers_check_message(&m), 0);
    static const char *const bad[] = {"", "../x", "snap_../../x",
                                      "tenant_01ARZ3NDEKTSV4RRFFQ69G5FAV"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(m.sandbox.from, ID_MAX, "%s", bad[i]);
        assert_int_equal(makers_check_message(&m), E_INVALID);
    }
    memset(m.sandbox.from, 'A', sizeof m.sandbox.from);
    assert_int_equal(makers_check_message(&m), E_INVALID);
    /* A snapshot never runs. */
    assert_int_equal(makers_check(PARENT_SANDBOX_DESTROY, &m.sandbox.spec), 0);
    assert_int_equal(makers_check(PARENT_SANDBOX_START, &m.sandbox.spec), E_INVALID);
    assert_int_equal(makers_check(PARENT_SANDBOX_CREATE, &m.sandbox.spec), E_INVALID);
}

static void volumes_and_mounts_are_checked(void **state)
{
    (void)state;
    static const char volume[] = "vol_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    struct parent_message m = {.verb = PARENT_VOLUME_REMOVE};
    struct sandbox_spec *s = &m.sandbox.spec;
    snprintf(s->id, sizeof s->id, "%s", volume);
    assert_int_equal(makers_check_message(&m), E_INVALID); /* whose? */
    snprintf(s->tenant, sizeof s->tenant, TENANT);
    assert_int_equal(makers_check_message(&m), 0);
    snprintf(s->tenant, sizeof s->tenant, "..");
    assert_int_equal(makers_check_message(&m), E_INVALID);
    snprintf(s->tenant, sizeof s->tenant, TENANT);
    snprintf(s->id, sizeof s->id, SESSION);
    assert_int_equal(makers_check_message(&m), E_INVALID);
    m = (struct parent_message){.verb = PARENT_MOUNT_CHECK};
    assert_int_equal(makers_check_message(&m), E_INVALID);
    s->mount_count = 1;
    s->mounts[0] = (struct sandbox_mount){.type = MOUNT_BIND, .source = "/srv", .target = "/srv/a"};
    assert_int_equal(makers_check_message(&m), 0);
    *s = good_spec();
    m.verb = PARENT_SANDBOX_START;
    s->mount_count = 1;
    s->mounts[0] = (struct sandbox_mount){.type = MOUNT_VOLUME, .target = "/srv/a"};
    assert_int_equal(makers_check_message(&m), E_INVALID);
    snprintf(s->mounts[0].source, sizeof s->mounts[0].source, "%s", volume);
    assert_int_equal(makers_check_message(&m), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_data_directory_gets_its_folders_and_modes),
        TEST(loose_modes_are_mended_at_the_next_start),
        TEST(only_one_service_may_hold_a_data_directory),
        TEST(a_link_in_place_of_a_data_file_is_refused),
        TEST(a_key_stays_the_same_over_restarts),
        TEST(a_long_path_gets_a_short_name_for_sockets),
        TEST(off_loopback_needs_tls_or_a_word),
        TEST(port_0_gives_the_real_port_in_the_url),
        TEST(what_is_sealed_opens_with_the_same_key_only),
        TEST(a_vault_key_others_can_read_is_refused),
        TEST(a_damaged_vault_key_is_not_replaced),
        TEST(environment_keys_are_sealed_for_the_tenant_and_wiped),
        TEST(with_several_tenants_environment_keys_are_only_wiped),
        TEST(a_credential_is_opened_for_a_session_only),
        TEST(every_field_of_a_sandbox_request_is_checked),
        TEST(copies_are_checked_on_both_sides),
        TEST(volumes_and_mounts_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
