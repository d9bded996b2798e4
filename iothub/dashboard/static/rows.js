// The rows of a table. It is one component, so that an update of the page changes what differs and leaves every other row, and a button that is being pressed, as it is.
export default {
  props: { columns: Array, rows: Array },
  emits: ["act"],
  template: `
    <q-table :columns="columns" :rows="rows" row-key="k" :pagination="{ rowsPerPage: 0 }" hide-pagination
      flat dense wrap-cells separator="horizontal" class="io-rows">
      <template #body="props">
        <q-tr :props="props">
          <q-td v-for="cell in props.row.cells" :class="cell.c">
            <a v-if="cell.h" :href="cell.h">{{ cell.t }}</a>
            <span v-else-if="cell.b" :class="'io-badge io-badge-' + cell.b">{{ cell.t }}</span>
            <div v-else-if="cell.p != null" class="io-meter"><span>{{ cell.t }}</span>
              <div :class="'io-bar io-bar-' + cell.m"><div :style="{width: cell.p + '%'}"></div></div></div>
            <span v-else :title="cell.t">{{ cell.t }}</span>
          </q-td>
          <q-td v-if="props.row.acts.length || props.row.has" class="io-acts">
            <q-btn v-for="act in props.row.acts" flat dense round size="sm" :icon="act.icon" :aria-label="act.label" :title="act.label"
              @click="$emit('act', [props.row.k, act.n])" />
          </q-td>
        </q-tr>
      </template>
      <template #no-data></template>
    </q-table>
  `,
};
