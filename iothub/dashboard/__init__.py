"""The dashboard: pages in a browser, on what the REST API has.

Every datum and every action of a page is a request to the REST application in this process, with the session of who looks at it:
authorisation, validation and the audit log are there, and nowhere here.

How a page is made: a file in `iothub.dashboard.pages` with a coroutine function, and its module in the list of `iothub.dashboard.app`.

    @page("/tenants/{tenant}/devices", title="Devices", scope="devices:read", group=TENANT, icon="memory", key="d")
    async def show(view: View) -> None:
        table = Table(view, f"/tenants/{view.tenant}/devices", COLUMNS, empty=Empty("No devices yet.", "iothub device create acme NAME"))
        await table.load()

`View` has the session: `view.api` asks REST, `view.may(scope)` says what to offer, `view.do(request, done=...)` runs an action and shows its refusal.
Strings from clients are handed to elements as text, and never as HTML, as keys of props or of a chart's options.
"""
